package sink

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/walstream/walstream/pkg/checkpoint"
	"github.com/walstream/walstream/pkg/outbox"
)

func TestTopicNames(t *testing.T) {
	for name, ok := range map[string]bool{
		"orders": true, "Orders.V2_x-y": true, "a": true, strings.Repeat("x", 249): true, "...": true, "_own": true,
		"": false, ".": false, "..": false, strings.Repeat("x", 250): false, "a b": false, "ünal": false,
		"a/b": false, "a\x00": false, "a\n": false, "a:b": false, "__consumer_offsets": false, "__transaction_state": false,
		"walstream.checkpoints.p": false, "walstream.history.p": false, "walstream.dead-letters.p": false, "walstream.control.p": false,
		"walstream.orders": true,
	} {
		if err := outbox.CheckTopic(name); (err == nil) != ok {
			t.Errorf("%q: %v", name, err)
		}
	}
}

// The topics that walstream keeps its books in are those that no row may name.
func TestNoRowNamesOurTopics(t *testing.T) {
	for _, prefix := range []string{checkpointPrefix, historyPrefix, deadPrefix, controlPrefix} {
		if MayPublishTo(prefix + "p") {
			t.Errorf("rows may go to %s", prefix)
		}
	}
}

// FuzzArena: what comes out is what went in, whatever the caller does with its
// bytes afterwards, and null and empty stay apart.
func FuzzArena(f *testing.F) {
	f.Add([]byte("key"), []byte("value"), []byte("header"), uint16(3))
	f.Add([]byte{}, []byte(nil), []byte{}, uint16(0))
	f.Fuzz(func(t *testing.T, key, value, header []byte, times uint16) {
		var a arena
		same := func(got, want []byte) {
			if !bytes.Equal(got, want) || (got == nil) != (want == nil) {
				t.Fatalf("got %q, want %q", got, want)
			}
		}
		var rows []*row
		var originals [][3][]byte
		for n := range int(times%64) + 1 {
			e := &outbox.Event{Topic: "t", Partition: -1, Key: bytes.Repeat(key, n), Value: value, Headers: []outbox.Header{{Key: "h", Value: header}, {Key: "n"}}}
			if key == nil {
				e.Key = nil
			}
			originals = append(originals, [3][]byte{bytes.Clone(e.Key), bytes.Clone(e.Value), bytes.Clone(header)})
			r := a.row(t.Context(), e, "t", checkpoint.Ticket{})
			scribble(e.Key)
			rows = append(rows, r)
		}
		scribble(value)
		scribble(header)
		for n, r := range rows {
			same(r.record.Key, originals[n][0])
			same(r.record.Value, originals[n][1])
			same(r.record.Headers[0].Value, originals[n][2])
			same(r.record.Headers[1].Value, nil)
			if cap(r.record.Value) != len(r.record.Value) {
				t.Fatal("a slice reaches into the next row's bytes")
			}
		}
	})
}

func scribble(b []byte) {
	for i := range b {
		b[i] ^= 0xFF
	}
}

func TestArenaAllocations(t *testing.T) {
	e := benchEvent("orders")
	var a arena
	if per := testing.AllocsPerRun(10_000, func() { a.row(t.Context(), e, "orders", checkpoint.Ticket{}) }); per > 0.05 {
		t.Errorf("%.3f allocations a row", per)
	}
}

// Partitions as Kafka's Java client chooses them: positive(murmur2(key)) % n.
// The hashes are those of its own test, UtilsTest.testMurmur2.
func TestPartitionerEqualsJava(t *testing.T) {
	p := partitioner{keyed: kgo.StickyKeyPartitioner(nil)}.ForTopic("t")
	for key, hash := range map[string]int32{
		"21": -973932308, "foobar": -790332482, "a-little-bit-long-string": -985981536,
		"a-little-bit-longer-string": -1486304829, "lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971, "abc": 479470107,
	} {
		for _, n := range []int{1, 3, 6, 50} {
			r := &kgo.Record{Key: []byte(key), Partition: -1}
			if got, want := p.Partition(r, n), int(hash&0x7fffffff)%n; got != want {
				t.Errorf("%q of %d: partition %d, want %d", key, n, got, want)
			}
			if !p.RequiresConsistency(r) {
				t.Errorf("%q may go elsewhere", key)
			}
		}
	}
	if got := p.Partition(&kgo.Record{Key: []byte("abc"), Partition: 4}, 6); got != 4 {
		t.Errorf("an explicit partition became %d", got)
	}
	if !p.RequiresConsistency(&kgo.Record{Partition: 0}) || p.RequiresConsistency(&kgo.Record{Partition: -1}) {
		t.Error("explicit partitions are kept, rows without key go where there is room")
	}
	if !p.RequiresConsistency(&kgo.Record{Key: []byte{}, Partition: -1}) {
		t.Error("an empty key is a key")
	}
}

func TestMailbox(t *testing.T) {
	m := NewMailbox()
	const writers, each = 8, 1000
	var wg sync.WaitGroup
	for range writers {
		wg.Go(func() {
			for range each {
				m.Put(checkpoint.Ticket{})
			}
		})
	}
	total := 0
	var report checkpoint.Report
	for total < writers*each {
		<-m.Ready()
		report.Reset()
		m.Drain(&report)
		total += len(report.Acked)
	}
	wg.Wait()
	if total != writers*each {
		t.Fatalf("%d of %d", total, writers*each)
	}

	m.PutDurable(edgeAt(200))
	m.PutDurable(edgeAt(100))
	first := errors.New("first")
	m.PutErr(first)
	m.PutErr(errors.New("second"))
	report.Reset()
	m.Drain(&report)
	if report.Durable != edgeAt(200) || !errors.Is(report.Err, first) {
		t.Errorf("%+v", report)
	}
	report.Reset()
	m.Drain(&report)
	if report.Durable.Covered != 0 || !errors.Is(report.Err, first) {
		t.Errorf("the edge is reported once, the error always: %+v", report)
	}
	m.Put(checkpoint.Ticket{})
	m.Close()
	m.Put(checkpoint.Ticket{})
	m.PutErr(first)
	report.Reset()
	m.Drain(&report)
	if len(report.Acked) != 0 || report.Err != nil {
		t.Errorf("after close: %+v", report)
	}
}

func TestStdout(t *testing.T) {
	var out bytes.Buffer
	r := drive(t, NewStdout(&out))
	e := event("orders", "k", `{"a":1}`, 7)
	e.Headers = []outbox.Header{{Key: "h", Value: []byte("text")}, {Key: "b", Value: []byte{0xFF}}, {Key: "null"}}
	e.Timestamp = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	tombstone := event("orders", "", "", 8)
	tombstone.Value, tombstone.Partition = nil, 3
	framed := event("orders", "k", `{"a":1}`, 9)
	framed.Schema, framed.SchemaAt = &outbox.Schema{Format: outbox.SchemaJSON}, outbox.SchemaAt{Subject: "orders-value"}
	r.transaction(e, tombstone, framed)
	r.untilConfirmed()
	if r.acked != 3 {
		t.Errorf("acknowledged %d", r.acked)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	want := []string{
		`{"position":"0/3EF#1","id":"7","topic":"orders","timestamp":"2026-01-02T03:04:05Z","key":"k","headers":[{"key":"h","value":"text"},{"key":"b","value":null,"value_base64":"/w=="},{"key":"null","value":null}],"value":"{\"a\":1}"}`,
		`"partition":3`,
	}
	if len(lines) != 3 || lines[0] != want[0] || !strings.Contains(lines[1], want[1]) || !strings.Contains(lines[1], `"value":null`) ||
		!strings.Contains(lines[2], `"value":"{\"a\":1}","schema_prefix_missing":"subject \"orders-value\""`) {
		t.Errorf("printed %q", lines)
	}
	for _, line := range lines {
		if !json.Valid([]byte(line)) {
			t.Errorf("not JSON: %s", line)
		}
	}

	broken := drive(t, NewStdout(failing{}))
	broken.transaction(event("orders", "k", "v", 1))
	if err := broken.untilError(); !errors.Is(err, errPipe) {
		t.Errorf("reported %v", err)
	}
}

var errPipe = errors.New("broken pipe")

type failing struct{}

func (failing) Write([]byte) (int, error) { return 0, errPipe }
