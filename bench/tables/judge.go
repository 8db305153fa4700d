package main

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	records "github.com/walstream/walstream/internal/verdict"
)

// expectedRecord is a row of the oracle.
type expectedRecord struct {
	n          int64
	topic      string
	key, value []byte
	partition  *int32
	at         *int64
	id         []byte
	names      []string
	headers    [][]byte
	written    time.Time
}

// verdict of a round, or of all.
type verdict struct {
	Rows     int `json:"rows"`     // committed
	Bad      int `json:"bad_rows"` // beside them
	Records  int `json:"records"`
	Lost     int `json:"lost"`
	Altered  int `json:"altered"`
	Doubled  int `json:"doubled"` // in exactly-once
	Repeated int `json:"repeated"`
	Unknown  int `json:"unknown"` // records of no committed row
	Disorder int `json:"disorder"`

	examples []string
	homes    map[string]int32 // partition of each key of a topic
}

func (v *verdict) add(o *verdict) {
	v.Rows += o.Rows
	v.Bad += o.Bad
	v.Records += o.Records
	v.Lost += o.Lost
	v.Altered += o.Altered
	v.Doubled += o.Doubled
	v.Repeated += o.Repeated
	v.Unknown += o.Unknown
	v.Disorder += o.Disorder
}

func (v *verdict) wrong() bool { return v.Lost+v.Altered+v.Doubled+v.Unknown+v.Disorder > 0 }

func (v *verdict) example(format string, args ...any) {
	if len(v.examples) < 8 {
		v.examples = append(v.examples, fmt.Sprintf(format, args...))
	}
}

// stream is what one delivery made of one table.
type stream struct{ pipeline, table string }

func header(r *kgo.Record, name string) string {
	for _, h := range r.Headers {
		if h.Key == name {
			return string(h.Value)
		}
	}
	return ""
}

// judge the records that were read, in the order of their partitions.
func (r *round) judge(ctx context.Context, all []*kgo.Record) (*verdict, error) {
	v := &verdict{}
	letters, all := sortLetters(all)
	if err := r.judgeLetters(ctx, v, letters); err != nil {
		return nil, err
	}
	read := v.sort(all, r.slot(1))
	for n := range r.tables {
		expected, err := r.expected(ctx, n)
		if err != nil {
			return nil, err
		}
		v.Rows += len(expected)
		for i := range deliveries {
			of := stream{r.slot(i), fmt.Sprint(n)}
			v.compare(of, expected, read[of])
			delete(read, of)
		}
	}
	for of, more := range read {
		v.Unknown += len(more)
		v.example("%d records of %+v, which is none of ours", len(more), of)
	}
	return v, nil
}

// read the round's topics.
func (r *round) read(ctx context.Context) (all []*kgo.Record, err error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	topics, err := r.withTopics(ctx, func(topic string) bool {
		return !strings.HasPrefix(topic, "walstream.") || strings.HasPrefix(topic, lettersTopic)
	}, settled)
	if err != nil || len(topics) == 0 { // no row was committed
		return nil, err
	}
	err = records.EachRecord(ctx, r.brokers, nil, topics, func(rec *kgo.Record) error {
		all = append(all, rec)
		return nil
	})
	return all, err
}

// settled waits until read_committed consumers see all: the broker answers the end
// of a transaction before it has written so into each partition.
func settled(ctx context.Context, admin *kadm.Client, topics []string) error {
	for len(topics) > 0 {
		committed, err := records.CommittedEnds(ctx, admin, topics...)
		if err != nil {
			return err
		}
		ends, err := admin.ListEndOffsets(ctx, topics...)
		if err != nil {
			return fmt.Errorf("list the end of %v: %w", topics, err)
		}
		open := ""
		ends.Each(func(o kadm.ListedOffset) {
			if stable := committed[records.Place{Topic: o.Topic, Partition: o.Partition}]; stable != o.Offset {
				open = fmt.Sprintf("%s/%d is stable up to %d of %d", o.Topic, o.Partition, stable, o.Offset)
			}
		})
		if open == "" {
			return nil
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("a transaction is open though all is confirmed: %s: %w", open, ctx.Err())
		}
	}
	return nil
}

// withTopics does something to those of the round's topics that are wanted, with
// a client of its own: one that has asked before goes by what it heard then.
func (r *round) withTopics(ctx context.Context, wanted func(string) bool, do func(context.Context, *kadm.Client, []string) error) (topics []string, err error) {
	client, err := kgo.NewClient(kgo.SeedBrokers(r.brokers...), kgo.DisableClientMetrics())
	if err != nil {
		return nil, err
	}
	defer client.Close()
	admin := kadm.NewClient(client)
	all, err := admin.ListTopics(ctx)
	if err != nil {
		return nil, fmt.Errorf("list the round's topics: %w", err)
	}
	for _, topic := range all.Names() {
		if strings.Contains(topic, r.name) && wanted(topic) {
			topics = append(topics, topic)
		}
	}
	return topics, do(ctx, admin, topics)
}

// sort returns the records of each stream in the order of their positions, each
// once.
func (v *verdict) sort(all []*kgo.Record, exact string) map[stream][]*kgo.Record {
	read, seen, last := map[stream][]*kgo.Record{}, map[string]*kgo.Record{}, map[string]string{}
	for _, rec := range all {
		of := stream{header(rec, "walstream-pipeline"), header(rec, "table")}
		position := header(rec, "walstream-position")
		v.Records++
		name := of.pipeline + " " + of.table + " " + position
		if first := seen[name]; first != nil {
			v.again(of, first, rec, of.pipeline == exact)
			continue
		}
		seen[name] = rec
		read[of] = append(read[of], rec)
		if rec.Key != nil {
			order := fmt.Sprintf("%v %s/%d %q", of, rec.Topic, rec.Partition, rec.Key)
			if position <= last[order] {
				v.Disorder++
				v.example("%s: %s stands behind %s", order, position, last[order])
			}
			last[order] = position
		}
	}
	for of := range read {
		slices.SortFunc(read[of], func(a, b *kgo.Record) int {
			return cmp.Compare(header(a, "walstream-position"), header(b, "walstream-position"))
		})
	}
	return read
}

// again: at-least-once may say a thing twice, as long as it says the same. Rows
// without a key go to any partition.
func (v *verdict) again(of stream, first, second *kgo.Record, exact bool) {
	switch {
	case exact:
		v.Doubled++
		v.example("%v: %s is there twice", of, header(first, "walstream-position"))
	case first.Topic != second.Topic || first.Key != nil && first.Partition != second.Partition || !bytes.Equal(first.Key, second.Key) || !bytes.Equal(first.Value, second.Value):
		v.Altered++
		v.example("%v: %s is there twice, and not the same: %s/%d %.200q %.200q and %s/%d %.200q %.200q", of, header(first, "walstream-position"),
			first.Topic, first.Partition, first.Key, first.Value, second.Topic, second.Partition, second.Key, second.Value)
	default:
		v.Repeated++
	}
}

func (r *round) expected(ctx context.Context, table int) ([]expectedRecord, error) {
	rows, err := r.db.Query(ctx, "SELECT n, topic, key, value, part, at, id, names, headers, written FROM public.oracle WHERE tab = $1 ORDER BY n", table)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (e expectedRecord, err error) {
		err = row.Scan(&e.n, &e.topic, &e.key, &e.value, &e.partition, &e.at, &e.id, &e.names, &e.headers, &e.written)
		return e, err
	})
}

// compare one by one. What is missing or too much shifts all behind it, so
// the records that differ are counted only while the numbers agree.
func (v *verdict) compare(of stream, expected []expectedRecord, got []*kgo.Record) {
	if len(got) != len(expected) {
		v.Lost += max(0, len(expected)-len(got))
		v.Unknown += max(0, len(got)-len(expected))
		v.example("%v: %d records of %d rows", of, len(got), len(expected))
	}
	for i := range min(len(got), len(expected)) {
		v.atHome(&expected[i], got[i])
		if what := difference(&expected[i], got[i], of); what != "" {
			v.Altered++
			v.example("%v: row %d of the oracle, %s: %s", of, expected[i].n, header(got[i], "walstream-position"), what)
		}
	}
}

// atHome: a key is in one partition, whoever published it, unless a column says
// where.
func (v *verdict) atHome(want *expectedRecord, got *kgo.Record) {
	if want.partition != nil || got.Key == nil {
		return
	}
	if v.homes == nil {
		v.homes = map[string]int32{}
	}
	key := fmt.Sprintf("%s %q", got.Topic, got.Key)
	if home, known := v.homes[key]; known && home != got.Partition {
		v.Disorder++
		v.example("%.200s is in partition %d and in %d", key, home, got.Partition)
	}
	v.homes[key] = got.Partition
}

func same(a, b []byte) bool { return bytes.Equal(a, b) && (a == nil) == (b == nil) }

// difference says which part is not what it must be.
func difference(want *expectedRecord, got *kgo.Record, of stream) string {
	position := header(got, "walstream-position")
	id := want.id
	if id == nil {
		id = []byte(position)
	}
	known, fault := filling(got, position)
	switch {
	case fault != "":
		return fault
	case got.Topic != want.topic:
		return fmt.Sprintf("topic %q instead of %q", got.Topic, want.topic)
	case !same(got.Key, want.key):
		return fmt.Sprintf("key %.300q instead of %.300q", got.Key, want.key)
	case !same(got.Value, known(want.value)):
		return fmt.Sprintf("value %.500q instead of %.500q", got.Value, known(want.value))
	case want.partition != nil && got.Partition != *want.partition:
		return fmt.Sprintf("partition %d instead of %d", got.Partition, *want.partition)
	case want.at != nil && got.Timestamp.UnixMilli() != *want.at:
		return fmt.Sprintf("timestamp %d instead of %d", got.Timestamp.UnixMilli(), *want.at)
	case want.at == nil && got.Timestamp.UnixMilli() < want.written.UnixMilli():
		return fmt.Sprintf("timestamp %v, before the row was written at %v", got.Timestamp, want.written)
	}
	headers := []kgo.RecordHeader{
		{Key: "walstream-position", Value: []byte(position)},
		{Key: "walstream-event-id", Value: id},
		{Key: "walstream-pipeline", Value: []byte(of.pipeline)},
	}
	for i, value := range want.headers {
		headers = append(headers, kgo.RecordHeader{Key: want.names[i], Value: known(value)})
	}
	for i, h := range headers[:min(len(headers), len(got.Headers))] {
		if g := got.Headers[i]; g.Key != h.Key || !same(g.Value, h.Value) {
			return fmt.Sprintf("header %s: %.300q instead of %s: %.300q", g.Key, g.Value, h.Key, h.Value)
		}
	}
	if len(headers) != len(got.Headers) {
		return fmt.Sprintf("%d headers instead of %d", len(got.Headers), len(headers))
	}
	return ""
}

// timeOf a structured CloudEvent.
var timeOf = regexp.MustCompile(`^\{"specversion":"1.0","id":"(?:[^"\\]|\\.)*","time":"([^"]*)"`)

// filling puts in what PostgreSQL could not know. A CloudEvent's time must agree
// with the record's.
func filling(got *kgo.Record, position string) (known func([]byte) []byte, fault string) {
	at := header(got, "ce_time")
	if found := timeOf.FindSubmatch(got.Value); found != nil && at == "" {
		at = string(found[1])
	}
	if at != "" {
		if t, err := time.Parse(time.RFC3339Nano, at); err != nil || t.UnixMilli() != got.Timestamp.UnixMilli() || !strings.HasSuffix(at, "Z") {
			return nil, fmt.Sprintf("time %s of the CloudEvent, and %v of the record", at, got.Timestamp)
		}
	}
	return func(want []byte) []byte {
		if !bytes.Contains(want, []byte("(the ")) {
			return want
		}
		want = bytes.ReplaceAll(want, []byte(positionHere), []byte(position))
		return bytes.ReplaceAll(want, []byte(timeHere), []byte(at))
	}, ""
}
