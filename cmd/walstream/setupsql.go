package main

import (
	"fmt"
	"strings"

	"github.com/walstream/walstream/pkg/pipeline"
	"github.com/walstream/walstream/pkg/replication"
)

// setupPlan is what a DBA is asked to run.
type setupPlan struct {
	setup       *Setup
	config      *Config
	publication replication.PublicationSpec
	database    string
	guessed     bool // the columns are not the tables'
}

// place is what differs where a server is a service: its administrators are no
// superusers, and give the right to replicate in a way of their own.
type place struct {
	name, as, logical string // where, whom to run it as, how wal_level becomes logical
	attributes        string // of the role
	more              string // statement that gives what no attribute does, with the role for %s
	note              string
}

var places = map[string]place{
	"plain": {
		name: "PostgreSQL", as: "a superuser", attributes: "LOGIN REPLICATION",
		logical: "ALTER SYSTEM SET wal_level = 'logical'; then restart the server",
	},
	"rds": {
		name: "Amazon RDS or Aurora", as: "the master user, or another member of rds_superuser", attributes: "LOGIN",
		logical: "rds.logical_replication = 1 in the parameter group, then reboot",
		more:    "GRANT rds_replication TO %s;",
		note:    "The role's right to replicate is membership in rds_replication; it has no REPLICATION attribute.",
	},
	"cloudsql": {
		name: "Google Cloud SQL", as: "postgres, or another member of cloudsqlsuperuser that has REPLICATION", attributes: "LOGIN REPLICATION",
		logical: "the flag cloudsql.logical_decoding = on, which restarts the instance",
		note:    "If REPLICATION is refused: ALTER USER postgres WITH REPLICATION; first, as that user itself.",
	},
	"azure": {
		name: "Azure Database for PostgreSQL, flexible server", as: "the server's administrator, a member of azure_pg_admin", attributes: "LOGIN REPLICATION",
		logical: "the server parameter wal_level = logical, then restart",
		note:    "If REPLICATION is refused: ALTER ROLE <administrator> WITH REPLICATION; first.",
	},
	"supabase": {
		name: "Supabase", as: "postgres", attributes: "LOGIN REPLICATION",
		logical: "nothing: wal_level is logical",
		note:    "walstream needs the direct connection (db.<project>.supabase.co:5432): a pooler passes no replication connection.",
	},
}

// sql is one script. What is there already is left as it is, so it can be run
// again, but for the slot.
func (p *setupPlan) sql() string {
	at := places[p.setup.For]
	role, database := quoteIdentifier(p.setup.Role), quoteIdentifier(p.database)
	var b strings.Builder
	say := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	say("-- walstream: pipeline %s, slot %s, on %s.", p.config.Pipeline, p.config.Slot, at.name)
	say("-- Printed by walstream setup --print, which changed nothing. Run it in database %s,", database)
	say("-- as %s, who also owns the table or is a member of its owner.", at.as)
	if at.note != "" {
		say("-- %s", at.note)
	}
	say("--")
	say("-- It takes wal_level = logical (SHOW wal_level): %s.", at.logical)
	say("")
	say("BEGIN;")
	say("")
	say("-- 1. The role. It reads the WAL of its slot and no table. pg_read_all_stats lets it say")
	say("--    who holds the slot or delays it. Give it a password: \\password %s", p.setup.Role)
	say("DO $walstream$ BEGIN")
	say("  IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = %s) THEN", quoteText(p.setup.Role))
	say("    CREATE ROLE %s %s;", role, at.attributes)
	say("  END IF;")
	say("END $walstream$;")
	if at.more != "" {
		say(at.more, role)
	}
	say("GRANT pg_read_all_stats TO %s;", role)
	say("GRANT CONNECT ON DATABASE %s TO %s;", database, role)
	p.tableRights(say, role)
	say("")
	say("-- 2. The publication: inserts only, and the columns that are mapped.")
	if p.guessed {
		say("--    The table could not be looked at: leave out columns that it has not got.")
	}
	say("DO $walstream$ BEGIN")
	say("  IF NOT EXISTS (SELECT FROM pg_publication WHERE pubname = %s) THEN", quoteText(p.publication.Name))
	say("    %s;", p.publication.SQL())
	say("  END IF;")
	say("END $walstream$;")
	say("")
	say("COMMIT;")
	say("")
	say("-- 3. The slot. From here on the server keeps WAL until it is read: run this last, or leave")
	say("--    it out: walstream makes the slot at its first start, and --adopt-slot is not needed.")
	say("--    Made here it is a slot without a checkpoint, so start walstream once with the LSN")
	say("--    that this returns:   walstream %s --adopt-slot=<lsn>", (&pipeline.Config{Slot: p.config.Slot, Pipeline: p.config.Pipeline}).Named())
	switch {
	case p.config.SlotFailover:
		say("--    A failover slot (PostgreSQL 17 and newer): docs/failover.md has what the standby")
		say("--    servers need to copy it.")
		say("SELECT lsn FROM pg_create_logical_replication_slot(%s, 'pgoutput', failover => true);", quoteText(p.config.Slot))
	case p.config.FromStandby:
		say("--    On the standby server that is streamed from, once it has the publication; it waits")
		say("--    until the primary logs what runs: SELECT pg_log_standby_snapshot(); there.")
		fallthrough
	default:
		say("SELECT lsn FROM pg_create_logical_replication_slot(%s, 'pgoutput');", quoteText(p.config.Slot))
	}
	return b.String()
}

// tableRights are those that settings take beside the stream; it takes none.
func (p *setupPlan) tableRights(say func(format string, args ...any), role string) {
	for _, t := range p.publication.Tables {
		table := Table{t.Schema, t.Name}
		if !p.config.retains() {
			say("-- Only walstream audit and prune look at the table: GRANT SELECT ON %s TO %s;", table, role)
			continue
		}
		rights := []string{"SELECT"}
		if p.config.Retention > 0 {
			rights = append(rights, "DELETE")
		}
		if p.config.Stamp != "" {
			rights = append(rights, "UPDATE ("+quoteIdentifier(p.config.Stamp)+")")
		}
		say("-- What --retention and --stamp take.")
		say("GRANT USAGE ON SCHEMA %s TO %s;", quoteIdentifier(t.Schema), role)
		say("GRANT %s ON %s TO %s;", strings.Join(rights, ", "), table, role)
		if p.config.Retention > 0 && p.config.DropPartitions {
			say("-- --drop-partitions takes the table's ownership: make %s a member of its owner.", role)
		}
	}
}

func quoteText(text string) string { return "'" + strings.ReplaceAll(text, "'", "''") + "'" }
