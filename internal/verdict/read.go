package verdict

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/walstream/walstream/pkg/decode"
	"github.com/walstream/walstream/pkg/outbox"
)

// ReadTable runs a query for the rows of the table: event id (text), key (text),
// sequence (bigint), value (bytea).
func ReadTable(ctx context.Context, conn *pgx.Conn, query string) ([]Row, error) {
	found, err := conn.Query(ctx, query)
	if err != nil {
		return nil, fmt.Errorf("read the outbox: %w", err)
	}
	var rows []Row
	var row Row
	var value []byte
	_, err = pgx.ForEachRow(found, []any{&row.ID, &row.Key, &row.Seq, &value}, func() error {
		row.Digest = Digest(value)
		rows = append(rows, row)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read the outbox: %w", err)
	}
	return rows, nil
}

// ReadTopics reads all partitions of the topics, read_committed, from their
// start to where they end now.
func ReadTopics(ctx context.Context, brokers []string, topics ...string) ([]Record, error) {
	var records []Record
	err := EachRecord(ctx, brokers, nil, topics, func(r *kgo.Record) error {
		record, err := NewRecord(r)
		records = append(records, record)
		return err
	})
	return records, err
}

// EachRecord calls do with the records of the topics, read_committed, from the
// given offsets (nil: the start of each partition) to where they end now.
// Records of a partition come in order.
func EachRecord(ctx context.Context, brokers []string, from map[Place]int64, topics []string, do func(*kgo.Record) error) error {
	client, err := kgo.NewClient(
		kgo.SeedBrokers(brokers...),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		// The end is known by offsets; it may be a control record's.
		kgo.KeepControlRecords(),
		kgo.FetchMaxWait(100*time.Millisecond),
		kgo.DisableClientMetrics(),
	)
	if err != nil {
		return err
	}
	defer client.Close()
	admin := kadm.NewClient(client)
	ends, err := CommittedEnds(ctx, admin, topics...)
	if err != nil {
		return err
	}
	starts, err := admin.ListStartOffsets(ctx, topics...)
	if err == nil {
		err = starts.Error()
	}
	if err != nil {
		return fmt.Errorf("list the start of %v: %w", topics, err)
	}
	wanted := map[string]map[int32]kgo.Offset{}
	for place, end := range ends {
		start, _ := starts.Lookup(place.Topic, place.Partition)
		first := max(start.Offset, from[place])
		if first >= end {
			delete(ends, place)
			continue
		}
		if wanted[place.Topic] == nil {
			wanted[place.Topic] = map[int32]kgo.Offset{}
		}
		wanted[place.Topic][place.Partition] = kgo.NewOffset().At(first)
	}
	client.AddConsumePartitions(wanted)
	return consume(ctx, client, ends, do)
}

// consume polls until every partition of ends has come to its end.
func consume(ctx context.Context, client *kgo.Client, ends map[Place]int64, do func(*kgo.Record) error) error {
	for len(ends) > 0 {
		fetches := client.PollFetches(ctx)
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("read the topics: %d partitions are not read to their end: %w", len(ends), err)
		}
		for _, failed := range fetches.Errors() {
			return fmt.Errorf("read %s/%d: %w", failed.Topic, failed.Partition, failed.Err)
		}
		for it := fetches.RecordIter(); !it.Done(); {
			r := it.Next()
			place := Place{r.Topic, r.Partition}
			end, reading := ends[place]
			if !reading || r.Offset >= end {
				continue // written since
			}
			if !r.Attrs.IsControl() {
				if err := do(r); err != nil {
					return err
				}
			}
			if r.Offset+1 == end {
				delete(ends, place)
			}
		}
	}
	return nil
}

// CommittedEnds returns where a read_committed consumer comes to the end of each
// partition now.
func CommittedEnds(ctx context.Context, admin *kadm.Client, topics ...string) (map[Place]int64, error) {
	listed, err := admin.ListCommittedOffsets(ctx, topics...)
	if err == nil {
		err = listed.Error()
	}
	if err != nil {
		return nil, fmt.Errorf("list the end of %v: %w", topics, err)
	}
	ends := map[Place]int64{}
	listed.Each(func(o kadm.ListedOffset) { ends[Place{o.Topic, o.Partition}] = o.Offset })
	return ends, nil
}

// NewRecord takes what matters from a record that walstream wrote.
func NewRecord(r *kgo.Record) (Record, error) {
	record := Record{
		Key: string(r.Key), Digest: Digest(r.Value), Place: Place{r.Topic, r.Partition}, Offset: r.Offset, Producer: r.ProducerID,
	}
	var position string
	for _, h := range r.Headers {
		switch h.Key {
		case outbox.HeaderEventID:
			record.ID = string(h.Value)
		case outbox.HeaderPosition:
			position = string(h.Value)
		}
	}
	var err error
	if _, record.Position, err = ParsePosition(position); err != nil {
		return record, fmt.Errorf("%s/%d@%d: %w", r.Topic, r.Partition, r.Offset, err)
	}
	return record, nil
}

// ParsePosition reads the walstream-position header.
func ParsePosition(text string) (timeline uint32, p decode.Position, err error) {
	if timeline, p, err = decode.ParseHeader([]byte(text)); err != nil {
		return 0, p, fmt.Errorf("header %s: %w", outbox.HeaderPosition, err)
	}
	return timeline, p, nil
}
