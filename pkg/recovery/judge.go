package recovery

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/walstream/walstream/pkg/checkpoint"
	"github.com/walstream/walstream/pkg/decode"
	"github.com/walstream/walstream/pkg/outbox"
	"github.com/walstream/walstream/pkg/replication"
	"github.com/walstream/walstream/pkg/sink"
	"github.com/walstream/walstream/pkg/snapshot"
)

// Config of a comparison.
type Config struct {
	Pipeline string
	Kafka    *sink.Kafka
	Mapping  []outbox.MappingConfig
	Tables   []snapshot.Wanted
	Doubt    checkpoint.Recovery
	// Wait is how long open Kafka transactions may take to end.
	Wait time.Duration
	// Progress is told now and then how far it is; nil is nobody.
	Progress func(text string)
	// Read is told that something more was read; nil is nobody.
	Read func()
}

func (c *Config) progress(format string, args ...any) {
	if c.Read != nil {
		c.Read()
	}
	if c.Progress != nil {
		c.Progress(fmt.Sprintf(format, args...))
	}
}

// Judge tells which rows the topics hold. It is a snapshot.Filter.
type Judge struct {
	cfg       Config
	mapping   *outbox.Mapping
	tables    []table
	topics    *topics
	published *published
	counts    checkpoint.Recovery
	row       decode.Row
	event     outbox.Event
	nowhere   string // in place of the event id where there is none

	// Missing and Reused name the first rows that are in no topic, or there with
	// another value.
	Missing, Reused []string
	LateKnown       bool // the server keeps the times of commits: late ones are told exactly
}

var _ snapshot.Filter = (*Judge)(nil)

// named rows, of each kind.
const named = 20

// Open reads what the topics hold. conn is in the transaction that the tables are
// read in; they are its.
func Open(ctx context.Context, conn *pgx.Conn, tables []snapshot.Table, cfg Config) (*Judge, error) {
	j := &Judge{cfg: cfg, counts: cfg.Doubt, published: newPublished(len(tables) > 1), row: decode.Row{Begin: &decode.Begin{}}}
	j.nowhere = j.row.Position.Header(0)
	var err error
	if j.mapping, err = outbox.NewMapping(cfg.Mapping); err != nil {
		return nil, err
	}
	var layouts []*decode.Relation
	for _, w := range cfg.Tables {
		layouts = append(layouts, w.Layout)
	}
	if err := j.mapping.Resolve(layouts...); err != nil {
		return nil, err
	}
	for n := range tables {
		if err := j.addTable(ctx, conn, &tables[n]); err != nil {
			return nil, err
		}
	}
	if j.LateKnown, err = keepsCommitTimes(ctx, conn); err != nil {
		return nil, err
	}
	j.topics = newTopics(j)
	if err := j.namedByRows(ctx, conn); err != nil {
		return nil, err
	}
	if err := j.topics.readAll(ctx); err != nil {
		j.Close()
		return nil, err
	}
	return j, nil
}

// Close gives up what is kept in files.
func (j *Judge) Close() { j.published.close() }

func keepsCommitTimes(ctx context.Context, conn *pgx.Conn) (kept bool, err error) {
	err = conn.QueryRow(ctx, "SELECT current_setting('track_commit_timestamp')::bool").Scan(&kept)
	if err != nil {
		return false, fmt.Errorf("read track_commit_timestamp: %w", replication.Classify(err))
	}
	return kept, nil
}

// Counted is what has become of the rows so far.
func (j *Judge) Counted() *checkpoint.Recovery {
	counted := j.counts
	return &counted
}

// Leaves tells whether a row is left out: the topics hold it, or the stream carries
// it. One that cannot become an event is not left out, unless it is a dead letter:
// what becomes of it the policy for bad rows says.
func (j *Judge) Leaves(table int, carried bool, formats []byte, values [][]byte) (bool, error) {
	j.counts.Read++
	if err := j.toEvent(table, formats, values); err != nil {
		return false, err
	}
	id := j.eventID()
	if id == nil {
		if carried {
			j.counts.Left++
		}
		return carried, nil
	}
	found, aside, reused, err := j.published.verdict(id, &j.event)
	if err != nil {
		return false, err
	}
	aside = aside && !j.counts.Forked // else an id in use again would be lost
	switch {
	case carried: // also one that is found: the stream is published in full
		j.counts.Left++
		return true, nil
	case found || aside || reused && j.counts.TrustIDs:
		j.counts.Found++
		if aside && !found {
			j.counts.Aside++
		}
		return true, nil
	case reused:
		j.counts.Reused++
		j.Reused = name(j.Reused, j.event.Table, id)
	}
	j.Missing = name(j.Missing, j.event.Table, id)
	return false, nil
}

func name(list []string, table string, id []byte) []string {
	if len(list) < named {
		list = append(list, table+" "+string(id))
	}
	return list
}

// toEvent maps a row as the stream does.
func (j *Judge) toEvent(n int, formats []byte, values [][]byte) error {
	j.row.Relation, j.row.Values = j.tables[n].Relation, j.row.Values[:0]
	for i, v := range values {
		value := decode.Value{Format: formats[i], Data: v}
		if v == nil {
			value.Format = decode.ValueNull
		}
		j.row.Values = append(j.row.Values, value)
	}
	j.event = outbox.Event{Headers: j.event.Headers[:0]}
	_, err := j.mapping.Map(&j.row, &j.event)
	if _, bad := errors.AsType[*outbox.RowError](err); bad {
		return nil
	}
	return err
}

// eventID of the row; nil: it has none.
func (j *Judge) eventID() []byte {
	for _, h := range j.event.Headers {
		if h.Key == outbox.HeaderEventID && string(h.Value) != j.nowhere {
			return h.Value
		}
	}
	return nil
}

// Survey reads the rows in doubt and publishes nothing. carried are the keys that
// the stream carries.
func (j *Judge) Survey(ctx context.Context, conn *pgx.Conn, carried *snapshot.Keys) error {
	return j.each(ctx, conn, func(n int, formats []byte, values [][]byte) error {
		key := make([][]byte, 0, len(j.tables[n].Key))
		for _, name := range j.tables[n].Key {
			key = append(key, values[j.tables[n].index(name)])
		}
		has, err := carried.Has(n, key)
		if err == nil {
			_, err = j.Leaves(n, has, formats, values)
		}
		if j.counts.Read%progressEvery == 0 {
			j.cfg.progress("compared %d rows", j.counts.Read)
		}
		return err
	})
}

// progressEvery so many rows or records somebody may be told.
const progressEvery = 1 << 14

// namedByRows finds out to which topics the rows in doubt go, where the settings do
// not say it.
func (j *Judge) namedByRows(ctx context.Context, conn *pgx.Conn) error {
	static := true
	for _, m := range j.cfg.Mapping {
		static = static && m.Topic != "" && m.TopicColumn == ""
	}
	if static {
		return nil
	}
	return j.each(ctx, conn, func(n int, formats []byte, values [][]byte) error {
		if err := j.toEvent(n, formats, values); err != nil {
			return err
		}
		format := ""
		if j.event.Schema != nil {
			format = j.event.Schema.Format
		}
		return j.topics.add(j.event.Topic, format)
	})
}
