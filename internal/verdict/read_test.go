package verdict

import (
	"context"
	"fmt"
	"testing"

	"github.com/jackc/pglogrepl"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/goleak"

	"github.com/walstream/walstream/internal/testenv"
	"github.com/walstream/walstream/pkg/decode"
	"github.com/walstream/walstream/pkg/outbox"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(testenv.Main(m)) }

// What was aborted or is not committed yet is not read, what comes later is left
// out, and the reader comes to its end although control records stand there.
func TestReadTopics(t *testing.T) {
	ctx := t.Context()
	_, brokers := testenv.NewKfake(t)
	client, err := kgo.NewClient(kgo.SeedBrokers(brokers...), kgo.TransactionalID("reader-test"), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	admin := kadm.NewClient(client)
	if _, err := admin.CreateTopic(ctx, 3, 1, nil, "events"); err != nil {
		t.Fatal(err)
	}
	write(t, client, kgo.TryCommit, 0, "a")
	write(t, client, kgo.TryCommit, 1, "b")
	write(t, client, kgo.TryAbort, 0, "aborted")

	got, err := ReadTopics(ctx, brokers, "events")
	if err != nil {
		t.Fatal(err)
	}
	ids := map[string]Record{}
	for _, r := range got {
		ids[r.ID] = r
	}
	want := decode.Position{CommitLSN: 0xABC, Ordinal: 1}
	if a := ids["a"]; len(got) != 2 || a.Key != "key of a" || a.Position != want || a.Place != (Place{"events", 0}) || a.Digest != Digest([]byte("value of a")) {
		t.Errorf("got %+v", got)
	}
	if ids["b"].Place.Partition != 1 {
		t.Errorf("got %+v", got)
	}
	ends, err := CommittedEnds(ctx, admin, "events")
	if err != nil {
		t.Fatal(err)
	}
	write(t, client, kgo.TryCommit, 1, "c")
	var read []string
	err = EachRecord(ctx, brokers, ends, []string{"events"}, func(r *kgo.Record) error {
		read = append(read, string(r.Value))
		return nil
	})
	if err != nil || fmt.Sprint(read) != "[value of c]" {
		t.Errorf("from the former end: %v, %v", read, err)
	}
}

func TestReadTopicsRefusesWhatWalstreamDidNotWrite(t *testing.T) {
	_, brokers := testenv.NewKfake(t)
	client, err := kgo.NewClient(kgo.SeedBrokers(brokers...))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if _, err := kadm.NewClient(client).CreateTopic(t.Context(), 1, 1, nil, "events"); err != nil {
		t.Fatal(err)
	}
	if err := client.ProduceSync(t.Context(), &kgo.Record{Topic: "events", Value: []byte("x")}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadTopics(t.Context(), brokers, "events"); err == nil {
		t.Error("a record without a position was taken")
	}
}

func write(t *testing.T, client *kgo.Client, end kgo.TransactionEndTry, partition int32, id string) {
	t.Helper()
	if err := client.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	record := &kgo.Record{
		Topic: "events", Partition: partition, Key: []byte("key of " + id), Value: []byte("value of " + id),
		Headers: []kgo.RecordHeader{
			{Key: outbox.HeaderPosition, Value: []byte(decode.Position{CommitLSN: pglogrepl.LSN(0xABC), Ordinal: 1}.Header(1))},
			{Key: outbox.HeaderEventID, Value: []byte(id)},
		},
	}
	if err := client.ProduceSync(t.Context(), record).FirstErr(); err != nil {
		t.Fatal(err)
	}
	if err := client.EndTransaction(context.WithoutCancel(t.Context()), end); err != nil {
		t.Fatal(err)
	}
}
