package replication

import "fmt"

const (
	oldestVersion = 150000
	newestVersion = 189999
)

func (f *facts) judgeServer(spec Spec) []Finding {
	return []Finding{
		f.judgeVersion(), f.judgeWALLevel(), f.judgeRecovery(spec), f.judgeSlots(), f.judgeSenders(),
		f.judgeSenderTimeout(), f.judgeKeptWAL(), f.judgeEncoding(), f.judgeFsync(),
	}
}

func (f *facts) judgeVersion() Finding {
	const name = "version"
	major := fmt.Sprintf("PostgreSQL %d", f.version/10000)
	switch {
	case f.version < oldestVersion:
		return fail(name, major+" is too old: walstream needs 15 to 18", "upgrade the server")
	case f.version > newestVersion:
		return warn(name, major+" is newer than the newest that walstream is tested with, 18", "look for a newer walstream")
	}
	return ok(name, major)
}

func (f *facts) judgeWALLevel() Finding {
	if f.walLevel != "logical" {
		return fail("wal_level", "it is "+f.walLevel+": the WAL does not hold what a logical slot needs",
			"ALTER SYSTEM SET wal_level = 'logical'; -- then restart the server")
	}
	return ok("wal_level", f.walLevel)
}

func (f *facts) judgeRecovery(spec Spec) Finding {
	switch {
	case f.inRecovery && spec.FromStandby:
		return f.judgeDecodingStandby()
	case f.inRecovery:
		standby := fail("primary", "the server is a standby, in recovery",
			"connect to the primary; with several hosts in the address add target_session_attrs=read-write; "+
				"to stream from this server (PostgreSQL 16 and newer): --from-standby")
		standby.Err = ErrInRecovery
		return standby
	}
	return ok("primary", "the server takes writes")
}

func (f *facts) judgeSlots() Finding {
	const name = "max_replication_slots"
	detail := fmt.Sprintf("%d of %d in use", f.slots, f.maxSlots)
	if f.slots >= f.maxSlots && !f.slot.Exists {
		return fail(name, detail+": there is none for walstream", fmt.Sprintf(
			"drop a slot that nobody uses, or ALTER SYSTEM SET max_replication_slots = %d; -- then restart the server", f.maxSlots+2))
	}
	return ok(name, detail)
}

func (f *facts) judgeSenders() Finding {
	const name = "max_wal_senders"
	detail := fmt.Sprintf("%d of %d in use", f.senders, f.maxSenders)
	remedy := fmt.Sprintf("ALTER SYSTEM SET max_wal_senders = %d; -- then restart the server", f.maxSenders+2)
	switch {
	case f.senders < f.maxSenders:
		return ok(name, detail)
	case f.slot.Active:
		return warn(name, detail+"; the one that holds the slot will be free when we take over", remedy)
	}
	return fail(name, detail+": there is none for walstream", remedy)
}

func (f *facts) judgeSenderTimeout() Finding {
	const name = "wal_sender_timeout"
	switch {
	case f.walSenderTimeout == 0:
		return ok(name, "off on the server: a vanished client would hold its slot for ever; walstream sets 15 s on its own session")
	case f.walSenderTimeout > int(ourWalSenderTimeout.Milliseconds()):
		return ok(name, fmt.Sprintf("%d s on the server; walstream sets 15 s on its own session", f.walSenderTimeout/1000))
	}
	return ok(name, fmt.Sprintf("%d ms, which walstream keeps", f.walSenderTimeout))
}

// judgeKeptWAL weighs two dangers: a full disk, and a slot that is given up.
func (f *facts) judgeKeptWAL() Finding {
	const name = "max_slot_wal_keep_size"
	if f.idleSlotTimeout > 0 {
		return warn("idle_replication_slot_timeout",
			"the server gives up slots that nobody reads for a while: a walstream stopped for longer than that loses its slot, and rows with it",
			"ALTER SYSTEM SET idle_replication_slot_timeout = 0; SELECT pg_reload_conf();")
	}
	if f.maxSlotWAL < 0 {
		return ok(name, "no limit: while walstream is stopped or Kafka is down, WAL is kept until it is back, or the disk is full")
	}
	return ok(name, fmt.Sprintf("%d MB: a slot further behind than that is given up, and rows with it", f.maxSlotWAL))
}

func (f *facts) judgeEncoding() Finding {
	if f.encoding == "SQL_ASCII" {
		return warn("encoding",
			"the database is SQL_ASCII: PostgreSQL does not know what its texts are; bytes that are no UTF-8 make it end the stream",
			"keep such bytes in bytea columns, or move the table to a UTF8 database")
	}
	return ok("encoding", f.encoding)
}

func (f *facts) judgeFsync() Finding {
	if !f.fsync {
		return warn("fsync", "it is off: a crash of the machine can take back rows that Kafka already has",
			"ALTER SYSTEM SET fsync = on; SELECT pg_reload_conf();")
	}
	return ok("fsync", "on")
}

// judgeStandby: with a matching name every COMMIT would wait for Kafka.
func (f *facts) judgeStandby(applicationName string) Finding {
	const name = "synchronous_standby_names"
	matches, err := MatchesStandbyNames(f.syncNames, applicationName)
	switch {
	case err != nil:
		return warn(name, err.Error(), "see that it does not match "+applicationName)
	case matches:
		return fail(name, fmt.Sprintf("%q matches walstream's application_name %s: every COMMIT of the application would wait for Kafka",
			f.syncNames, applicationName),
			"ALTER SYSTEM SET synchronous_standby_names = '<the names of your standby servers>'; SELECT pg_reload_conf(); -- or another --pipeline, unless it is *")
	case f.syncNames == "":
		return ok(name, "empty")
	}
	return ok(name, fmt.Sprintf("%q does not match application_name %s", f.syncNames, applicationName))
}

func (f *facts) judgeRights() []Finding {
	r := f.rights
	role := "role " + r.Role
	if !r.Replication {
		return []Finding{failRight(role, &RightError{
			What: "the REPLICATION attribute", SQL: fmt.Sprintf("ALTER ROLE %s REPLICATION;", quoteIdentifier(r.Role)),
		})}
	}
	found := []Finding{ok(role, "may replicate")}
	if !r.ReadAllStats {
		found = append(found, warn(role, "it is not in pg_read_all_stats: walstream cannot name who holds its slot or delays it",
			fmt.Sprintf("GRANT pg_read_all_stats TO %s;", quoteIdentifier(r.Role))))
	}
	return found
}
