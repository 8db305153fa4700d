package sink

import (
	"errors"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/walstream/walstream/pkg/checkpoint"
)

// A record that walstream did not write is no checkpoint. It is shown where it
// is, and how the last good one comes back: following that, all is well.
func TestCheckpointThatCannotBeRead(t *testing.T) {
	everyBroker(t, func(t *testing.T, brokers []string) {
		cfg := testConfig(t, brokers)
		k := open(t, cfg)
		c := claim(t, k)
		good := baseRecord(cfg.Pipeline).With(edgeAt(2000))
		if err := c.Write(within(t, 20*time.Second), good); err != nil {
			t.Fatal(err)
		}
		c.Close()
		producer := client(t, brokers)
		write := func(value []byte) int64 {
			t.Helper()
			record := &kgo.Record{Topic: cfg.checkpointTopic(), Key: []byte(cfg.Pipeline), Value: value}
			if err := producer.ProduceSync(within(t, 20*time.Second), record).FirstErr(); err != nil {
				t.Fatal(err)
			}
			return record.Offset
		}
		value, err := good.Encode()
		if err != nil {
			t.Fatal(err)
		}
		for _, bad := range []string{"hello", "", "null", `{"format":0}`, `{"format":1,"covered":"x"}`} {
			at := write([]byte(bad))
			_, _, err := k.Load(within(t, 20*time.Second))
			var unreadable *CheckpointError
			if !errors.As(err, &unreadable) || Retriable(err) || unreadable.Topic != cfg.checkpointTopic() || unreadable.Offset != at {
				t.Fatalf("%q: reported %v (offset %d)", bad, err, at)
			}
			mustContain(t, err, cfg.checkpointTopic(), cfg.Pipeline, "kafka-console-consumer.sh", "--adopt-slot")
			mustBeRunnable(t, brokers, err.Error())
			write(value)
			mustLoad(t, k, 2000)
		}
		write([]byte(`{"format":99,"walstream_version":"9.9.9"}`))
		if _, _, err := k.Load(within(t, 20*time.Second)); !errors.Is(err, checkpoint.ErrNewerFormat) || as[*CheckpointError](err) {
			t.Errorf("a newer format: reported %v", err)
		}
	})
}
