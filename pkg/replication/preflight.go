package replication

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// Status of a finding.
type Status string

// What a finding means: fine; worth knowing; walstream will not start.
const (
	StatusOK   Status = "ok"
	StatusWarn Status = "warn"
	StatusFail Status = "fail"
)

// Finding is one thing that Preflight looked at.
type Finding struct {
	Name   string // what was looked at, e.g. "wal_level" or "table public.outbox"
	Status Status
	Detail string
	Remedy string // SQL or a command that mends it; empty when fine
	Err    error  // ErrMissingRight, ErrSlotLost, ErrSlotUnusable, what went wrong, or nil
}

// Spec is what walstream needs of the server.
type Spec struct {
	Slot            string
	Failover        bool // the slot is to be, or to be made, a failover slot
	FromStandby     bool // a server in recovery will do
	Publication     PublicationSpec
	ApplicationName string // of the replication connection
	// Rewind is the window of the trailing slot, and RewindMax how much WAL that may
	// keep (0: no bound of its own); 0: none is asked for.
	Rewind    time.Duration
	RewindMax int64
}

// Preflight looks at everything that setting up and streaming need, and says of
// each thing how it stands. It changes nothing and locks nothing.
func Preflight(ctx context.Context, conn *pgx.Conn, spec Spec) []Finding {
	f, err := readFacts(ctx, conn, spec)
	if err != nil {
		return []Finding{{
			Name: "server", Status: StatusFail, Detail: err.Error(), Err: err,
			Remedy: "see that the server answers queries, then try again",
		}}
	}
	return f.judge(spec)
}

// PreflightError is a server, role, table, publication or slot that walstream
// will not start with.
type PreflightError struct {
	Findings []Finding // the failed ones
}

// Refused returns the failed findings as a *PreflightError, nil when there are
// none. What only kept Preflight from looking, and may be over at the next try, is
// returned as it is: nothing was found that needs a person.
func Refused(findings []Finding) error {
	failed := slices.DeleteFunc(slices.Clone(findings), func(f Finding) bool { return f.Status != StatusFail })
	if len(failed) == 0 {
		return nil
	}
	for _, f := range failed {
		if Transient(f.Err) || errors.Is(f.Err, context.Canceled) || errors.Is(f.Err, context.DeadlineExceeded) {
			return f.Err
		}
	}
	return &PreflightError{Findings: failed}
}

func (e *PreflightError) Error() string {
	lines := make([]string, len(e.Findings))
	for i, f := range e.Findings {
		lines[i] = f.Name + ": " + f.Detail
		if f.Remedy != "" {
			lines[i] += "; remedy: " + f.Remedy
		}
	}
	return strings.Join(lines, "\n")
}

// Unwrap lets errors.Is find the sentinels of the findings.
func (e *PreflightError) Unwrap() []error {
	var errs []error
	for _, f := range e.Findings {
		if f.Err != nil {
			errs = append(errs, f.Err)
		}
	}
	return errs
}

// facts are what the server says, read at once so that judging them is pure.
type facts struct {
	version             int
	inRecovery, fsync   bool
	walLevel, encoding  string
	syncNames           string
	maxSlots, slots     int
	maxSenders, senders int
	walSenderTimeout    int    // milliseconds
	maxSlotWAL          int    // MB, -1: no limit
	idleSlotTimeout     int    // 18+, seconds; 0: none
	standbySlots        string // synchronized_standby_slots, 17+
	feedback            bool   // hot_standby_feedback of this server
	primarySlot         string // primary_slot_name of this server
	followers           []follower
	rights              Rights
	publication         PublicationInfo
	otherTables         []string // carried by the publication besides ours
	otherPublications   []string // that carry our tables, when ours is missing beside a slot
	tables              []TableInfo
	slot                SlotInfo
	rewind              Rewind // where one is asked for
}

const factsQuery = `
SELECT current_setting('server_version_num')::int, pg_is_in_recovery(), current_setting('fsync')::bool,
       current_setting('wal_level'), current_setting('server_encoding'), current_setting('synchronous_standby_names'),
       current_setting('max_replication_slots')::int, (SELECT count(*)::int FROM pg_replication_slots),
       current_setting('max_wal_senders')::int, (SELECT count(*)::int FROM pg_stat_replication),
       (SELECT setting::int FROM pg_settings WHERE name = 'wal_sender_timeout'),
       (SELECT setting::int FROM pg_settings WHERE name = 'max_slot_wal_keep_size'),
       coalesce((SELECT setting::int FROM pg_settings WHERE name = 'idle_replication_slot_timeout'), 0),
       coalesce(current_setting('synchronized_standby_slots', true), ''), current_setting('hot_standby_feedback')::bool,
       coalesce(current_setting('primary_slot_name', true), '')`

const otherTablesQuery = `
SELECT name FROM (
  SELECT format('table %s.%s', n.nspname, c.relname) AS name
  FROM pg_publication_rel r JOIN pg_class c ON c.oid = r.prrelid JOIN pg_namespace n ON n.oid = c.relnamespace
  JOIN pg_publication p ON p.oid = r.prpubid WHERE p.pubname = $1 AND NOT c.oid = ANY ($2::oid[])
  UNION ALL
  SELECT format('all tables of schema %s', n.nspname)
  FROM pg_publication_namespace r JOIN pg_namespace n ON n.oid = r.pnnspid
  JOIN pg_publication p ON p.oid = r.pnpubid WHERE p.pubname = $1) carried
ORDER BY name LIMIT 10`

// otherPublicationsQuery: through one of them the slot was read so far.
const otherPublicationsQuery = `
SELECT DISTINCT p.pubname::text FROM pg_publication_tables p
JOIN pg_namespace n ON n.nspname = p.schemaname JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = p.tablename
WHERE c.oid = ANY ($1::oid[]) ORDER BY 1 LIMIT 10`

func readFacts(ctx context.Context, conn *pgx.Conn, spec Spec) (f facts, err error) {
	err = conn.QueryRow(ctx, factsQuery).Scan(&f.version, &f.inRecovery, &f.fsync, &f.walLevel, &f.encoding, &f.syncNames,
		&f.maxSlots, &f.slots, &f.maxSenders, &f.senders, &f.walSenderTimeout, &f.maxSlotWAL, &f.idleSlotTimeout,
		&f.standbySlots, &f.feedback, &f.primarySlot)
	if err != nil {
		return f, fmt.Errorf("read the server's settings: %w", classify(err))
	}
	// Before the publication: an instance that sets up makes that first, so whoever
	// sees the slot sees the publication too.
	if f.slot, err = LookupSlot(ctx, conn, spec.Slot); err != nil {
		return f, err
	}
	if spec.Rewind > 0 {
		if f.rewind, err = ReadRewind(ctx, conn, spec.Slot); err != nil {
			return f, err
		}
	}
	if f.rights, err = LookupRights(ctx, conn); err != nil {
		return f, err
	}
	if f.publication, err = LookupPublication(ctx, conn, spec.Publication.Name); err != nil {
		return f, err
	}
	if f.version >= failoverVersion && (spec.Failover || f.slot.Failover) {
		if f.followers, err = lookupFollowers(ctx, conn); err != nil {
			return f, err
		}
	}
	var oids []uint32
	for _, named := range spec.Publication.Tables {
		t, err := LookupTable(ctx, conn, named.Schema, named.Name, spec.Publication.Name)
		if err != nil {
			return f, err
		}
		f.tables = append(f.tables, t)
		oids = append(oids, t.OID)
	}
	rows, err := conn.Query(ctx, otherTablesQuery, spec.Publication.Name, oids)
	if err == nil {
		f.otherTables, err = pgx.CollectRows(rows, pgx.RowTo[string])
	}
	if err != nil {
		return f, fmt.Errorf("look up what publication %q carries: %w", spec.Publication.Name, classify(err))
	}
	if f.slot.Exists && !f.publication.Exists {
		if rows, err = conn.Query(ctx, otherPublicationsQuery, oids); err == nil {
			f.otherPublications, err = pgx.CollectRows(rows, pgx.RowTo[string])
		}
		if err != nil {
			return f, fmt.Errorf("look up the publications of the tables: %w", classify(err))
		}
	}
	return f, nil
}

// judge goes from the server to the slot, in the order a person would mend it.
func (f *facts) judge(spec Spec) []Finding {
	var found []Finding
	found = append(found, f.judgeServer(spec)...)
	found = append(found, f.judgeStandby(spec.ApplicationName))
	found = append(found, f.judgeRights()...)
	for i := range f.tables {
		found = append(found, f.judgeTable(&f.tables[i], spec.Publication.Tables[i])...)
	}
	found = append(found, f.judgePublication(spec)...)
	found = append(found, f.judgeSlot(spec)...)
	found = append(found, f.judgeFailover(spec)...)
	if spec.Rewind > 0 {
		found = append(found, f.judgeRewind(spec)...)
	}
	return found
}

// publishable is the publication without the columns that the server would not
// take into it, which judgeTable has named: the statements that mend the rest
// must run.
func (f *facts) publishable(p PublicationSpec) PublicationSpec {
	p.Tables = slices.Clone(p.Tables)
	for i := range p.Tables {
		p.Tables[i].Columns = slices.DeleteFunc(slices.Clone(p.Tables[i].Columns), func(name string) bool {
			return !slices.ContainsFunc(f.tables[i].Columns, func(c TableColumn) bool { return c.Name == name && c.publishable(f.version) })
		})
	}
	return p
}

func ok(name, detail string) Finding {
	return Finding{Name: name, Status: StatusOK, Detail: detail}
}

func warn(name, detail, remedy string) Finding {
	return Finding{Name: name, Status: StatusWarn, Detail: detail, Remedy: remedy}
}

func fail(name, detail, remedy string) Finding {
	return Finding{Name: name, Status: StatusFail, Detail: detail, Remedy: remedy}
}

func failRight(name string, right *RightError) Finding {
	return Finding{Name: name, Status: StatusFail, Detail: "the role lacks " + right.What, Remedy: right.SQL, Err: ErrMissingRight}
}
