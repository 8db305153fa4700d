package audit

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/walstream/walstream/pkg/outbox"
	"github.com/walstream/walstream/pkg/replication"
	"github.com/walstream/walstream/pkg/sink"
)

// Run audits: it reads the table, waits until the checkpoint covers what it read,
// reads the topics to the ends they have then, and judges. It changes nothing on
// either side. An error means that there is no verdict.
func Run(ctx context.Context, cfg Config) (*Result, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	kafka, err := sink.Open(cfg.Kafka)
	if err != nil {
		return nil, err
	}
	defer kafka.Close()
	session, err := replication.OpenSession(ctx, cfg.Postgres)
	if err != nil {
		return nil, err
	}
	defer session.Close()
	a := &audit{cfg: &cfg, conn: session.Conn(), kafka: kafka, shorten: cfg.scope().byTable && cfg.scope().claimed}
	r, err := a.run(ctx)
	if err == nil && a.shortened && r.Missing > 0 {
		// A row's time may be later than its record's: before anything is called
		// missing, the topics are read from where they begin.
		cfg.progress("%d rows were not found: reading the topics from their begin", r.Missing)
		a.shorten = false
		r, err = a.run(ctx)
	}
	if err == nil {
		err = a.nameMissing(ctx, r)
	}
	return r, err
}

type audit struct {
	cfg    *Config
	conn   *pgx.Conn
	kafka  *sink.Kafka
	judge  *judge
	tables *tables

	letters   lettersFacts // the dead letters, as they were read
	least     int64        // the earliest time of a row read; 0: unknown
	untimed   bool         // a row has none
	shorten   bool         // topics need not be read from their begin
	shortened bool         // and were not
}

func (a *audit) run(ctx context.Context) (*Result, error) {
	began := time.Now()
	// The other half is the clients' buffers, and what waits for the collector.
	a.judge = newJudge(a.cfg.scope(), a.cfg.TempDir, int(a.cfg.Memory/2))
	defer a.judge.close()
	a.judge.result.list = a.cfg.Missing != nil
	a.least, a.untimed, a.shortened = 0, false, false
	var err error
	if a.tables, err = openTables(ctx, a.cfg, a.conn); err != nil {
		return nil, err
	}
	for _, s := range a.tables.sources {
		a.judge.timed = append(a.judge.timed, s.timed)
	}
	m, err := a.readTables(ctx)
	if err != nil {
		return nil, err
	}
	p, err := await(ctx, a.cfg, a.conn, a.kafka, m)
	if err != nil {
		return nil, err
	}
	if !p.exists {
		return nil, &SetupError{
			fmt.Sprintf("Kafka holds no checkpoint of pipeline %q: nothing says what ought to be in the topics", a.cfg.Pipeline),
			"check --pipeline; one that has never run has nothing to audit",
		}
	}
	if err := sameServer(ctx, a.conn, a.cfg, p.record); err != nil {
		return nil, err
	}
	// The topics' ends are read after the checkpoint: what it covers is below them.
	t := &topics{cfg: a.cfg, kafka: a.kafka, judge: a.judge, facts: map[string]topicFacts{}}
	if a.shorten && a.least != 0 && !a.untimed {
		t.since, a.shortened = time.UnixMicro(a.least).Add(-edgeTime), true
	}
	retriedTo, err := a.readLetters(ctx)
	if err != nil {
		return nil, err
	}
	if err := t.readAll(ctx, topicsOf(a.cfg, append(retriedTo, a.judge.topics.list...))); err != nil {
		return nil, err
	}
	complete, why, err := a.complete(ctx, t)
	if err != nil {
		return nil, err
	}
	a.cfg.progress("judging")
	r, err := a.judge.judge(facts{
		due: dueness{all: p.covered, below: p.below, next: m.next}, covered: p.record.Covered, until: m.until,
		topics: t.facts, complete: complete, letters: a.letters,
	})
	if err != nil {
		return nil, err
	}
	r.Topics, r.Pipeline, r.Range, r.Delivery = t.read, a.cfg.Pipeline, a.cfg.rangeText(), p.record.Delivery
	r.Notes = append(a.notes(r, p, why), t.notes()...)
	if a.shortened {
		r.Notes = append(r.Notes, "the topics were read from "+t.since.UTC().Format(time.RFC3339)+" on")
	}
	err = a.nameExamples(ctx, r)
	r.Seconds = time.Since(began).Seconds()
	return r, err
}

// progressEvery so many rows or records somebody may be told.
const progressEvery = 1 << 14

// readTables takes the rows in.
func (a *audit) readTables(ctx context.Context) (moment, error) {
	m, err := begin(ctx, a.conn)
	if err != nil {
		return m, err
	}
	n := int64(0)
	err = a.tables.readAll(ctx, a.conn, func(f *found) error {
		n++
		if n%progressEvery == 0 {
			a.cfg.progress("read %d rows", n)
		}
		a.untimed = a.untimed || f.at == 0 || !a.tables.sources[f.owner].timed
		if a.least == 0 || f.at < a.least {
			a.least = f.at
		}
		f.row.bad = f.bad != nil
		return a.judge.addRow(&f.row)
	})
	return m, errors.Join(err, replication.EndReading(ctx, a.conn))
}

// complete tells whether the ordinals of a transaction must all be in the topics
// that were read, and if not, why.
func (a *audit) complete(ctx context.Context, t *topics) (complete bool, why string, err error) {
	if a.judge.scope.byTable {
		return false, "", nil // ordinals of a range of rows say nothing
	}
	for _, f := range t.facts {
		if f.forgets || f.compacted || f.hidden {
			return false, "a topic does not have all of its records any more", nil
		}
	}
	for _, m := range a.cfg.Mapping {
		if (m.Topic == "" || m.TopicColumn != "") && len(a.cfg.Topics) == 0 {
			return false, "rows that are deleted may have named topics of their own (--topics says which there are)", nil
		}
	}
	var others bool
	err = a.conn.QueryRow(ctx, othersQuery, a.cfg.Publication, len(a.cfg.Mapping)).Scan(&others)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return false, "there is no publication " + a.cfg.Publication, nil
	case err != nil:
		return false, "", fmt.Errorf("look up publication %q: %w", a.cfg.Publication, err)
	case others:
		return false, "publication " + a.cfg.Publication + " carries other tables too", nil
	}
	return true, "", nil
}

const othersQuery = `
SELECT p.puballtables OR EXISTS (SELECT FROM pg_publication_namespace n WHERE n.pnpubid = p.oid)
       OR (SELECT count(*) FROM pg_publication_rel r WHERE r.prpubid = p.oid) <> $2
FROM pg_publication p WHERE p.pubname = $1`

// nameExamples looks up the rows of the examples, by where they stood. One that
// has moved since, or is gone, stays without a name.
func (a *audit) nameExamples(ctx context.Context, r *Result) error {
	for i := range r.examples {
		e := &r.examples[i]
		text := e.kind + ": " + e.text
		if e.row != nil {
			name, err := a.nameRow(ctx, e.row)
			if err != nil {
				return err
			}
			text = e.kind + ": " + name
			if e.text != "" {
				text += ": " + e.text
			}
		}
		r.Examples = append(r.Examples, text)
	}
	return nil
}

// badName is a row's that cannot become a record; its position is not known here.
func badName(s *source, bad *outbox.RowError) string {
	name := s.plain + ", row " + bad.RowID
	if bad.Column != "" {
		name += fmt.Sprintf(", column %q", bad.Column)
	}
	return name + ": " + bad.Reason
}

func (a *audit) nameRow(ctx context.Context, at *rowRef) (string, error) {
	s := a.tables.sources[at.owner]
	name := fmt.Sprintf("%s, the row that stood at ctid %s and has moved or gone since", s.plain, at.ctid())
	err := a.findRow(ctx, at, func(f *found) {
		if f.bad != nil {
			name = badName(s, f.bad)
			return
		}
		name = fmt.Sprintf("%s, row %s (topic %s", s.plain, f.event.RowID, f.topic)
		if f.id != nil {
			name += ", event id " + string(f.id)
		}
		name += ")"
	})
	return name, err
}

// nameMissing names every row that is missing to whoever asked for it.
func (a *audit) nameMissing(ctx context.Context, r *Result) error {
	for i := range r.missing {
		err := a.findRow(ctx, &r.missing[i], func(f *found) {
			switch {
			case len(f.id) > 0:
				a.cfg.Missing(string(f.id))
			case f.bad != nil:
				a.cfg.Missing(f.bad.RowID)
			default:
				a.cfg.Missing(f.event.RowID)
			}
		})
		if err != nil {
			return err
		}
	}
	if r.list && int64(len(r.missing)) < r.Missing {
		r.Notes = append(r.Notes, fmt.Sprintf("of %d rows that are missing %d are listed: audit again when these are published", r.Missing, len(r.missing)))
	}
	return nil
}

// findRow looks up a row by where it stood, unless it has moved or gone since.
func (a *audit) findRow(ctx context.Context, at *rowRef, take func(f *found)) error {
	s := a.tables.sources[at.owner]
	return a.tables.query(ctx, a.conn, s, s.selection("ctid = $1"), []any{at.ctid()}, func(f *found) error {
		var e entry
		if a.judge.identify(&e, f.id, f.topic, f.key, f.value); e.ident == at.ident {
			take(f)
		}
		return nil
	})
}

func (r *rowRef) ctid() string { return fmt.Sprintf("(%d,%d)", r.tid>>16, r.tid&0xFFFF) }
