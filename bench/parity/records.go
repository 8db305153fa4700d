package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.yaml.in/yaml/v4"

	"github.com/walstream/walstream/internal/service"
	"github.com/walstream/walstream/internal/testenv"
	"github.com/walstream/walstream/pkg/outbox"
)

// partitions of every topic.
const partitions = 8

// stream is a running walstream over the tables of some groups.
type stream struct {
	slot    string
	groups  []*group
	service *service.Service
	// ended is set when it did not come to stream, or stopped at a row.
	ended string
}

// startStreams starts one walstream for most groups, and one for each that wants
// to be alone. They stream on return, or have refused to.
func startStreams(ctx context.Context, binary, dir string, pg *testenv.Postgres, kafka *testenv.Kafka, groups []*group) ([]*stream, error) {
	streams := []*stream{{slot: "parity_slot"}}
	for _, g := range groups {
		if g.Alone {
			streams = append(streams, &stream{slot: "parity_" + g.table() + "_slot", groups: []*group{g}})
		} else {
			streams[0].groups = append(streams[0].groups, g)
		}
	}
	for _, s := range streams {
		path, err := s.writeSettings(dir)
		if err != nil {
			return streams, err
		}
		s.service, err = service.Start(service.Options{
			Binary: binary,
			Args:   []string{"--config", path, "--kafka-brokers", strings.Join(kafka.Brokers, ",")},
			Env:    []string{"WALSTREAM_POSTGRES=" + pg.DSN("")},
		})
		if err != nil {
			return streams, err
		}
	}
	for i, s := range streams {
		err := s.service.WaitStreaming(ctx)
		if s.noteEnd(); err != nil && (i == 0 || s.ended == "") {
			return streams, err
		}
	}
	return streams, nil
}

// writeSettings writes the file a user would.
func (s *stream) writeSettings(dir string) (path string, err error) {
	settings := map[string]any{
		"slot": s.slot, "delivery": "at-least-once", // without markers among the records; they are the same
		"create-topics": true, "topic-partitions": partitions, "log-format": "json",
	}
	var tables []any
	for _, g := range s.groups {
		tables = append(tables, g.settings())
	}
	settings["outboxes"] = tables
	text, err := yaml.Dump(settings)
	if err != nil {
		return "", err
	}
	path = filepath.Join(dir, s.slot+".yaml")
	return path, os.WriteFile(path, text, 0o600)
}

// noteEnd tells what a walstream that ended said last.
func (s *stream) noteEnd() {
	select {
	case <-s.service.Done():
		lines := strings.Split(s.service.Log(), "\n")
		s.ended = fmt.Sprintf("exit code %d: %s", s.service.ExitCode(), lines[len(lines)-1])
	default:
	}
}

// awaitAll waits until everything before end is published and confirmed, or the
// walstream has stopped.
func (s *stream) awaitAll(ctx context.Context, db *pgx.Conn, end pglogrepl.LSN) error {
	for s.ended == "" {
		var text string
		if err := db.QueryRow(ctx, "SELECT confirmed_flush_lsn::text FROM pg_replication_slots WHERE slot_name = $1", s.slot).Scan(&text); err != nil {
			return fmt.Errorf("slot %s: %w", s.slot, err)
		}
		confirmed, err := pglogrepl.ParseLSN(text)
		if err != nil {
			return err
		}
		if confirmed >= end {
			return nil
		}
		if s.noteEnd(); s.ended == "" {
			select {
			case <-ctx.Done():
				return fmt.Errorf("walstream has not confirmed %s: %w\n%s", end, ctx.Err(), s.service.Log())
			case <-time.After(50 * time.Millisecond):
			}
		}
	}
	return nil
}

// stop ends those that still run.
func stop(streams []*stream) {
	for _, s := range streams {
		if s.service != nil {
			s.service.Kill()
		}
	}
}

// answersOf reads the topics and says what became of the rows.
func answersOf(ctx context.Context, kafka *testenv.Kafka, streams []*stream, samples []*sample) (map[string]*answer, error) {
	records, err := readTopics(ctx, kafka)
	if err != nil {
		return nil, err
	}
	answers := map[string]*answer{}
	for _, s := range samples {
		a := &answer{Case: s.name, Outcome: dropped}
		at := slices.IndexFunc(streams, func(st *stream) bool { return slices.Contains(st.groups, s.group) })
		if ended := streams[at].ended; ended != "" {
			if !s.group.Alone {
				return nil, fmt.Errorf("walstream stopped, in the middle of the corpus: %s", ended)
			}
			a.Outcome, a.Error = refused, ended
		}
		answers[s.name] = a
	}
	for _, r := range records {
		lsn, err := commitOf(r)
		if err != nil {
			return nil, err
		}
		at := slices.IndexFunc(samples, func(s *sample) bool { return lsn >= s.from && lsn < s.end })
		if at < 0 {
			continue // the insert before an update or a delete
		}
		a := answers[samples[at].name]
		if a.Outcome != dropped {
			return nil, fmt.Errorf("row %s: a second record, in topic %s", samples[at].name, r.Topic)
		}
		a.fill(r)
	}
	return answers, nil
}

func (a *answer) fill(r *kgo.Record) {
	a.Outcome, a.Topic, a.Key, a.Value = published, r.Topic, r.Key, r.Value
	a.Partition, a.Timestamp = &r.Partition, r.Timestamp.UnixMilli()
	for _, h := range r.Headers {
		a.Headers = append(a.Headers, header{h.Key, h.Value})
	}
}

// commitOf is the LSN in a record's walstream-position.
func commitOf(r *kgo.Record) (pglogrepl.LSN, error) {
	at := slices.IndexFunc(r.Headers, func(h kgo.RecordHeader) bool { return h.Key == outbox.HeaderPosition })
	if at < 0 {
		return 0, fmt.Errorf("a record of topic %s is without %s", r.Topic, outbox.HeaderPosition)
	}
	fields := strings.Split(string(r.Headers[at].Value), "-")
	if len(fields) != 3 {
		return 0, fmt.Errorf("%s is %q", outbox.HeaderPosition, r.Headers[at].Value)
	}
	lsn, err := strconv.ParseUint(fields[1], 16, 64)
	return pglogrepl.LSN(lsn), err
}

// readTopics reads all but walstream's own topics from begin to end.
func readTopics(ctx context.Context, kafka *testenv.Kafka) (records []*kgo.Record, err error) {
	client, err := kgo.NewClient(kgo.SeedBrokers(kafka.Brokers...))
	if err != nil {
		return nil, err
	}
	defer client.Close()
	ends, err := kadm.NewClient(client).ListEndOffsets(ctx)
	if err != nil {
		return nil, err
	}
	if err := ends.Error(); err != nil {
		return nil, err
	}
	want := 0
	starts := map[string]map[int32]kgo.Offset{}
	ends.Each(func(o kadm.ListedOffset) {
		if strings.HasPrefix(o.Topic, "walstream.") || strings.HasPrefix(o.Topic, "__") || o.Offset == 0 {
			return
		}
		want += int(o.Offset)
		if starts[o.Topic] == nil {
			starts[o.Topic] = map[int32]kgo.Offset{}
		}
		starts[o.Topic][o.Partition] = kgo.NewOffset().At(0)
	})
	client.AddConsumePartitions(starts)
	for len(records) < want {
		fetches := client.PollFetches(ctx)
		if err := errors.Join(ctx.Err(), fetches.Err()); err != nil {
			return nil, fmt.Errorf("%d of %d records read: %w", len(records), want, err)
		}
		records = append(records, fetches.Records()...)
	}
	return records, nil
}
