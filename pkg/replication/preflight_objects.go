package replication

import (
	"fmt"
	"slices"
	"strings"
)

// judgeTable: its rows must reach the WAL, under its name, with the columns that
// are mapped.
func (f *facts) judgeTable(t *TableInfo, need PublishedTable) []Finding {
	name := "table " + need.String()
	if !t.Exists {
		return []Finding{fail(name, fmt.Sprintf("it is not in database %s", f.rights.Database),
			"create it (sql/publication.sql), or name another by --table")}
	}
	var found []Finding
	bad := func(detail, remedy string) { found = append(found, fail(name, detail, remedy)) }
	switch t.Kind {
	case "r", "p":
	default:
		bad("it is a "+kindName(t.Kind)+": only the rows of ordinary and partitioned tables reach the WAL", "name the table beneath it by --table")
	}
	switch {
	case t.Persistence == "t":
		bad("it is temporary: its rows never reach the WAL", "name another by --table")
	case t.Persistence == "u":
		bad("it is unlogged: its rows never reach the WAL", fmt.Sprintf("ALTER TABLE %s SET LOGGED;", need.quoted()))
	}
	for _, child := range t.Children {
		detail, remedy := child.problem()
		bad(detail, remedy)
	}
	for _, column := range need.Columns {
		i := slices.IndexFunc(t.Columns, func(c TableColumn) bool { return c.Name == column })
		switch {
		case i < 0:
			detail, setting := fmt.Sprintf("it has no column %q, which is mapped", column), "the setting that maps it"
			if named := need.Settings[column]; named != "" {
				detail, setting = detail+" by "+named, named
			}
			bad(detail, "add the column, or name another by "+setting)
		case t.Columns[i].Generated == "v":
			bad(fmt.Sprintf("column %q is a virtual generated column, which never reaches the stream", column),
				"make it an ordinary column, or map another")
		case t.Columns[i].Generated != "" && f.version < 180000:
			bad(fmt.Sprintf("column %q is a generated column, which reaches the stream from PostgreSQL 18 on", column),
				"make it an ordinary column, or map another")
		}
	}
	if len(found) == 0 {
		found = append(found, ok(name, fmt.Sprintf("%s, mapped: %s", kindName(t.Kind), strings.Join(need.Columns, ", "))))
	}
	return found
}

func kindName(kind string) string {
	switch kind {
	case "r":
		return "ordinary table"
	case "p":
		return "partitioned table"
	case "v":
		return "view"
	case "m":
		return "materialized view"
	case "f":
		return "foreign table"
	}
	return "relation of kind " + kind
}

// problem of a partition, or of a table that inherits.
func (c TableChild) problem() (detail, remedy string) {
	switch {
	case c.Kind == "f":
		return fmt.Sprintf("its partition %s is a foreign table: rows written to it never reach the WAL", c),
			fmt.Sprintf("ALTER TABLE %s DETACH PARTITION %s;", c.Parent, c.quoted())
	case c.Persistence != "p":
		return fmt.Sprintf("%s, a part of it, is unlogged: rows written to it never reach the WAL", c),
			fmt.Sprintf("ALTER TABLE %s SET LOGGED;", c.quoted())
	}
	return fmt.Sprintf("table %s inherits from it: its rows would arrive under their own table's name and be passed over", c),
		fmt.Sprintf("ALTER TABLE %s NO INHERIT %s; and where its rows are events, list it as an outbox of its own in the file; or use partitions", c.quoted(), c.Parent)
}

func (f *facts) judgePublication(spec Spec) []Finding {
	p, want := f.publication, spec.Publication
	name := "publication " + want.Name
	if !p.Exists {
		return f.judgeMissingPublication(name, spec)
	}
	var found []Finding
	alter := "ALTER PUBLICATION " + quoteIdentifier(want.Name) + " "
	mend := f.publishable(want)
	if !p.Insert {
		found = append(found, fail(name, "it does not publish inserts", alter+"SET (publish = 'insert');"))
	} else if p.Update || p.Delete || p.Truncate {
		found = append(found, warn(name, "it publishes more than inserts: updates, deletes and truncates are sent to walstream, which drops them",
			alter+"SET (publish = 'insert');"))
	}
	if p.AllTables {
		found = append(found, warn(name, "it is for all tables: every change of the database is decoded and sent, and dropped by walstream",
			"DROP PUBLICATION "+quoteIdentifier(want.Name)+"; "+f.keepingAll(mend).SQL()+"; -- while walstream is stopped and has read everything"))
	} else if len(f.otherTables) > 0 {
		found = append(found, warn(name, "it carries more than the outbox, which walstream drops: "+strings.Join(f.otherTables, ", "),
			alter+"DROP TABLE ...; or DROP TABLES IN SCHEMA ...;"))
	}
	for i := range f.tables {
		if f.tables[i].Exists {
			found = append(found, f.judgePublished(name, &f.tables[i], want.Tables[i], mend.Tables[i], alter)...)
		}
	}
	if Refused(found) == nil {
		found = append([]Finding{ok(name, "it carries the inserts of what is mapped")}, found...)
	}
	return found
}

// judgeMissingPublication: we make it at the first start, and only then.
func (f *facts) judgeMissingPublication(name string, spec Spec) []Finding {
	if f.slot.Exists {
		remedy := ""
		for _, other := range f.otherPublications { // a connector's, for example
			remedy += fmt.Sprintf("if the slot was read with publication %s: --publication=%s; ", other, other)
		}
		return []Finding{fail(name, fmt.Sprintf(
			"it is not there, but slot %s is: what was written since the slot was made is decoded without the publication, which fails or passes rows over", spec.Slot),
			remedy+fmt.Sprintf("if nothing of the slot is needed: SELECT pg_drop_replication_slot(%s); and start walstream, which makes both", quoteLiteral(spec.Slot)))}
	}
	if f.inRecovery {
		return []Finding{fail(name, "it is not there, and a server in recovery cannot make it",
			"on the primary: "+spec.Publication.SQL()+"; -- the slot is to be made once this server has it")}
	}
	var found []Finding
	for _, right := range f.missingPublicationRights(spec.Publication) {
		found = append(found, failRight(name, &right))
	}
	if len(found) == 0 {
		found = append(found, ok(name, "not there yet: walstream makes it at its first start"))
	}
	return found
}

// sql names the table in a statement about a publication; without columns it is
// published whole.
func (t PublishedTable) sql() string {
	if len(t.Columns) == 0 {
		return t.quoted()
	}
	return t.quoted() + " (" + quoteAll(t.Columns) + ")"
}

// keeping is the table as the publication carries it now, and what should be there
// beside that. A remedy takes no column away: where a setting is misspelt, the column
// that was meant looks like one that nothing maps.
func (f *facts) keeping(t *TableInfo, mend PublishedTable, more ...string) PublishedTable {
	kept := mend
	kept.Columns = nil
	whole := !t.ColumnList
	for _, c := range t.Columns {
		carried := t.Carries(c, f.publication, f.version)
		wanted := slices.Contains(mend.Columns, c.Name) || slices.Contains(more, c.Name)
		if carried || wanted {
			kept.Columns = append(kept.Columns, c.Name)
		}
		whole = whole && (carried || !wanted)
	}
	if whole { // with the columns that will be added, too
		kept.Columns = nil
	}
	return kept
}

func (f *facts) keepingAll(mend PublicationSpec) PublicationSpec {
	mend.Tables = slices.Clone(mend.Tables)
	for i := range mend.Tables {
		if f.tables[i].Exists {
			mend.Tables[i] = f.keeping(&f.tables[i], mend.Tables[i])
		}
	}
	return mend
}

// judgePublished: what the publication says about one table; mend is what it
// should, as far as the table has it.
func (f *facts) judgePublished(name string, t *TableInfo, need, mend PublishedTable, alter string) (found []Finding) {
	bad := func(detail, remedy string) { found = append(found, fail(name, detail, remedy)) }
	if !t.Published {
		bad(fmt.Sprintf("it does not carry table %s", need), alter+"ADD TABLE "+mend.sql()+";")
		return found
	}
	replace := func(more ...string) string {
		// In one transaction: rows written between the two would be passed over.
		with := f.keeping(t, mend, more...)
		return "BEGIN; " + alter + "DROP TABLE " + mend.quoted() + "; " + alter + "ADD TABLE " + with.sql() + "; COMMIT;"
	}
	if t.RowFilter {
		bad(fmt.Sprintf("it leaves rows of %s out: its filter would lose events", need), replace())
	}
	if t.Kind == "p" && !f.publication.ViaRoot {
		bad(fmt.Sprintf("the rows of %s would arrive under the names of its partitions", need), alter+"SET (publish_via_partition_root = true);")
	}
	var missing, idle, absent []string
	for _, c := range t.Columns {
		carried, mapped := t.Carries(c, f.publication, f.version), slices.Contains(need.Columns, c.Name)
		switch {
		case mapped && !carried:
			missing = append(missing, c.Name)
		case !mapped && c.Listed:
			idle = append(idle, c.Name)
		case !carried && slices.Contains(need.Absent, c.Name) && (c.Generated == "" || f.version >= 180000 && c.Generated == "s"):
			absent = append(absent, c.Name)
		}
	}
	if len(missing) > 0 {
		bad(fmt.Sprintf("of %s it does not carry what is mapped: %s", need, strings.Join(missing, ", ")), replace())
	}
	if len(absent) > 0 {
		found = append(found, warn(name, fmt.Sprintf("of %s it does not carry what would be mapped by default: %s",
			need, strings.Join(absent, ", ")), replace(absent...)))
	}
	if len(idle) > 0 {
		found = append(found, warn(name, fmt.Sprintf("of %s it carries columns that nothing maps (a mapped one that was renamed?): %s",
			need, strings.Join(idle, ", ")), "name them by the settings that map columns, or leave them: they cost what sending them costs"))
	}
	return found
}

func (f *facts) judgeSlot(spec Spec) []Finding {
	name := "slot " + spec.Slot
	s := f.slot
	if spec.Failover && f.version < failoverVersion {
		return []Finding{fail(name, fmt.Sprintf("--slot-failover: failover slots need PostgreSQL 17 or newer, this server is %d", f.version/10000),
			"start without --slot-failover; docs/failover.md says what a failover then takes")}
	}
	if !s.Exists && f.inRecovery {
		return []Finding{ok(name, "not there yet: walstream makes it at its first start, which waits for the primary to log what runs: SELECT pg_log_standby_snapshot(); there")}
	}
	if !s.Exists {
		return []Finding{ok(name, "not there yet: walstream makes it at its first start, which waits for every open writing transaction")}
	}
	if err := s.refusal(f.rights.Database); err != nil {
		return []Finding{{Name: name, Status: StatusFail, Detail: err.Reason, Remedy: err.Remedy, Err: err}}
	}
	var found []Finding
	if s.WALStatus == "unreserved" {
		found = append(found, warn(name, "it is so far behind that the next checkpoint of the server may give it up",
			"let walstream catch up now, or raise max_slot_wal_keep_size"))
	}
	if spec.Failover && !s.Failover {
		found = append(found, warn(name, "it is no failover slot: after a failover it would not be on the new primary; a walstream that takes it with --slot-failover makes it one",
			fmt.Sprintf("start walstream with --slot-failover, every instance; or %s; -- on a replication connection, while nobody streams", alterFailover(spec.Slot))))
	}
	switch {
	case s.HeldBySomebodyElse(spec.ApplicationName):
		found = append(found, warn(name, "in use by "+s.Holder()+", which is no instance of this pipeline: walstream waits until it is free",
			fmt.Sprintf("where it is not to have the slot: SELECT pg_terminate_backend(%d);", s.ActivePID)))
	case s.Active && s.ApplicationName != "":
		found = append(found, ok(name, "in use by another instance of this pipeline: "+s.Holder()))
	case s.Active: // nobody tells us who it is
		found = append(found, warn(name, "in use by "+s.Holder()+": walstream waits until it is free", ""))
	default:
		found = append(found, ok(name, fmt.Sprintf("free, confirmed up to %s", s.ConfirmedFlush)))
	}
	return found
}
