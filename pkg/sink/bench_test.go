package sink

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/walstream/walstream/internal/testenv"
	"github.com/walstream/walstream/pkg/checkpoint"
	"github.com/walstream/walstream/pkg/outbox"
)

func benchEvent(topic string) *outbox.Event {
	e := event(topic, "", "", 1)
	e.Key = make([]byte, 16)
	e.Value = make([]byte, 1024)
	for i := range e.Value {
		e.Value[i] = byte(' ' + rand.IntN(90))
	}
	e.Headers = []outbox.Header{
		{Key: "walstream-position", Value: make([]byte, 34)},
		{Key: "walstream-event-id", Value: make([]byte, 36)},
		{Key: "walstream-pipeline", Value: []byte("bank.bank_outbox_slot")},
	}
	return e
}

// BenchmarkArena is what one row costs in memory: the copy alone.
func BenchmarkArena(b *testing.B) {
	e := benchEvent("orders")
	var a arena
	b.SetBytes(int64(len(e.Value)))
	b.ReportAllocs()
	for b.Loop() {
		a.row(b.Context(), e, "orders", checkpoint.Ticket{})
	}
}

// BenchmarkEncode is what a row's size in a batch costs to know.
func BenchmarkEncode(b *testing.B) {
	e := benchEvent("orders")
	b.ReportAllocs()
	for b.Loop() {
		if recordSize(e) <= len(e.Value) {
			b.Fatal("too small")
		}
	}
}

// BenchmarkIdempotent is the whole way of a row of 1 KB into the broker and
// back: three partitions, transactions of a hundred rows. Its CPU is this
// process's, so it means something only against a real broker.
func BenchmarkIdempotent(b *testing.B) { benchmarkSink(b, start) }

// BenchmarkTransactional is the same in exactly-once.
func BenchmarkTransactional(b *testing.B) { benchmarkSink(b, startExactly) }

func benchmarkSink(b *testing.B, start starter) {
	for _, perTransaction := range []int{100, 1} {
		b.Run(fmt.Sprint(perTransaction, "-per-transaction"), func(b *testing.B) {
			k := testenv.SharedKafka(b)
			topic := createTopic(b, k.Brokers, 3, nil)
			r := start(b, testConfig(b, k.Brokers))
			e := benchEvent(topic)
			r.transaction(e)
			r.untilConfirmed()
			b.SetBytes(int64(len(e.Value)))
			b.ReportAllocs()
			cpu := cpuTime()
			began := time.Now()
			b.ResetTimer()
			for n := 0; n < b.N; n += perTransaction {
				r.begin()
				for m := range perTransaction {
					e.Key[0], e.Key[1] = byte(n+m), byte((n+m)>>8)
					r.row(e)
				}
				r.end()
				for r.ledger.Full() {
					<-r.sink.Ready()
					r.drain()
				}
				select {
				case <-r.sink.Ready():
					r.drain()
				default:
				}
			}
			r.untilConfirmed()
			b.StopTimer()
			if s, ok := r.sink.(*Transactional); ok {
				b.ReportMetric(float64(s.Stats().Commits), "commits")
			}
			b.ReportMetric(float64(b.N)/time.Since(began).Seconds(), "rows/s")
			b.ReportMetric((cpuTime()-cpu).Seconds()*1e6/float64(b.N), "cpu-s/million")
			b.ReportMetric(0, "ns/op")
		})
	}
}
