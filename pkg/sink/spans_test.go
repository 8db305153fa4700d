package sink

import (
	"encoding/hex"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/walstream/walstream/internal/testenv"
	"github.com/walstream/walstream/pkg/checkpoint"
	"github.com/walstream/walstream/pkg/decode"
	"github.com/walstream/walstream/pkg/outbox"
)

func TestParseTrace(t *testing.T) {
	const whole = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	for text, ok := range map[string]bool{
		whole: true,
		"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00": true,
		strings.Replace(whole, "00-", "cc-", 1) + "-what-comes":   true, // of a later version
		strings.Replace(whole, "00-", "cc-", 1) + "xx":            false,
		strings.Replace(whole, "00-", "ff-", 1):                   false,
		whole + "-more":                                           false,
		whole[:len(whole)-1]:                                      false,
		"":                                                        false,
		strings.ToUpper(whole):                                    false,
		whole[:53] + "0g":                                         false,
		"00-" + whole[3:] + " ":                                   false,
		"00-00000000000000000000000000000000-b7ad6b7169203331-01": false,
		"00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01": false,
		strings.ReplaceAll(whole, "-", "_"):                       false,
	} {
		trace, got := parseTrace([]byte(text))
		if got != ok {
			t.Errorf("%q is a trace: %v", text, got)
		}
		if ok && (hex.EncodeToString(trace.TraceID[:]) != text[3:35] || hex.EncodeToString(trace.SpanID[:]) != text[36:52] || fmt.Sprintf("%02x", trace.Flags) != text[53:55]) {
			t.Errorf("%q reads as %+v", text, trace)
		}
	}
}

func FuzzParseTrace(f *testing.F) {
	f.Add([]byte("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"))
	f.Add([]byte("cc-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more"))
	f.Fuzz(func(t *testing.T, text []byte) {
		if trace, ok := parseTrace(text); ok && fmt.Sprintf("%x-%x-%02x", trace.TraceID, trace.SpanID, trace.Flags) != string(text[3:55]) {
			t.Errorf("%q reads as %+v", text, trace)
		}
	})
}

func traced(e *outbox.Event, n int) *outbox.Event {
	e.Headers = append(e.Headers, outbox.Header{Key: outbox.HeaderTrace, Value: fmt.Appendf(nil, "00-%032x-%016x-01", n+1, n+1)})
	return e
}

// commits takes what a sink tells.
type commits struct {
	mu   sync.Mutex
	each []Commit
}

func (c *commits) take(commit *Commit) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.each = append(c.each, *commit)
}

// Every row is in one commit, with its bytes, its range and its trace.
func TestCommitsAreTold(t *testing.T) {
	everySink(t, func(t *testing.T, start starter) {
		_, brokers := testenv.NewKfake(t)
		topic, told := createTopic(t, brokers, 3, nil), &commits{}
		cfg := testConfig(t, brokers)
		cfg.OnCommit = told.take
		r := start(t, cfg)
		const transactions, each = 40, 10
		for n := range transactions {
			r.begin()
			for row := range each {
				e := traced(event(topic, "key", "value", n), n) // the rows of a transaction share one
				e.Position = decode.Position{CommitLSN: pglogrepl.LSN(r.lsn - 8), Ordinal: uint32(row + 1)}
				r.row(e)
			}
			r.end()
			if n%10 == 0 {
				r.untilConfirmed()
			}
		}
		r.untilConfirmed()
		r.close()
		rows, bytes, traces, last := 0, 0, map[Trace]bool{}, pglogrepl.LSN(0)
		for _, c := range told.each {
			rows += c.Rows
			bytes += c.Bytes
			if c.Err != nil || c.Split || c.MoreTraces != 0 || c.Began.IsZero() || c.Ended.Before(c.Began) || len(c.Traces) != c.Rows/each {
				t.Errorf("%+v", c)
			}
			if c.First <= last || c.Last < c.First || c.Covered <= c.Last {
				t.Errorf("range %s to %s, covered %s, behind %s", c.First, c.Last, c.Covered, last)
			}
			last = c.Last
			for _, trace := range c.Traces {
				traces[trace] = true
			}
		}
		if rows != transactions*each || bytes != rows*len("key"+"value") || len(traces) != transactions || len(told.each) < 4 {
			t.Errorf("%d rows, %d bytes, %d traces in %d commits", rows, bytes, len(traces), len(told.each))
		}
	})
}

// A commit that fails is told with its error, and its rows are in the next one.
func TestFailedCommitIsTold(t *testing.T) {
	cluster, brokers := testenv.NewKfake(t)
	told := &commits{}
	cfg := testConfig(t, brokers)
	cfg.OnCommit = told.take
	topic := createTopic(t, brokers, 1, nil)
	r := startExactly(t, cfg)
	cluster.ControlKey(int16(kmsg.EndTxn), func(request kmsg.Request) (kmsg.Response, error, bool) {
		response := request.ResponseKind().(*kmsg.EndTxnResponse)
		response.ErrorCode = kerr.ProducerFenced.Code
		return response, nil, true
	})
	r.transaction(traced(event(topic, "key", "value", 1), 1))
	if err := r.untilError(); err == nil {
		t.Fatal("committed")
	}
	r.close()
	if len(told.each) != 1 || told.each[0].Err == nil || told.each[0].Rows != 1 || told.each[0].Covered != 0 {
		t.Errorf("%+v", told.each)
	}
}

// The number of links is bounded; what is beyond is counted.
func TestTracesAreBounded(t *testing.T) {
	c := &Commit{}
	for n := range 3 * maxTraces {
		c.take(tracedRow(n))
		c.take(tracedRow(n)) // twice is once, while there is room
	}
	if len(c.Traces) != maxTraces || c.MoreTraces != 2*2*maxTraces || c.Rows != 6*maxTraces {
		t.Errorf("%d traces, %d more, %d rows", len(c.Traces), c.MoreTraces, c.Rows)
	}
}

func tracedRow(n int) *row {
	return &row{position: decode.Position{CommitLSN: pglogrepl.LSN(n + 1)}, record: kgo.Record{
		Key: []byte("key"), Value: []byte("value"),
		Headers: []kgo.RecordHeader{{Key: outbox.HeaderTrace, Value: fmt.Appendf(nil, "00-%032x-%016x-01", n+1, n+1)}},
	}}
}

// What waits for its checkpoint is taken out once, by the checkpoint that covers
// it, and leaves nothing behind.
func TestUncovered(t *testing.T) {
	u := &uncovered{}
	for n := range 10 {
		u.take(tracedRow(n))
		u.take(tracedRow(n))
	}
	for _, c := range []struct {
		covered     pglogrepl.LSN
		rows        int
		first, last pglogrepl.LSN
	}{{1, 0, 0, 0}, {4, 6, 1, 3}, {4, 0, 0, 0}, {100, 14, 4, 10}, {100, 0, 0, 0}} {
		if got := u.covered(checkpoint.Edge{Covered: c.covered}); got.Rows != c.rows || got.First != c.first || got.Last != c.last || len(got.Traces) != c.rows/2 {
			t.Errorf("covered by %s: %+v", c.covered, got)
		}
	}
	if len(u.each) != 0 || u.each[:1][0].Traces != nil {
		t.Errorf("%d are left, and their traces", len(u.each))
	}
}

// Tracing is free when nobody traces: nothing is kept for it, and a row costs a
// comparison with nil.
func TestFreeWhenOff(t *testing.T) {
	everySink(t, func(t *testing.T, start starter) {
		_, brokers := testenv.NewKfake(t)
		topic := createTopic(t, brokers, 1, nil)
		r := start(t, testConfig(t, brokers))
		r.transaction(traced(event(topic, "key", "value", 1), 1))
		r.untilConfirmed()
		r.close()
		switch s := r.sink.(type) {
		case *Idempotent:
			if s.uncovered != nil {
				t.Error("rows are kept for whoever traces")
			}
		case *Transactional:
			if s.span != nil {
				t.Error("a commit is kept for whoever traces")
			}
		}
	})
	c := &Commit{}
	r := tracedRow(1)
	c.take(r)
	if n := testing.AllocsPerRun(1000, func() { c.take(r) }); n != 0 {
		t.Errorf("and when on, a row of a trace that is known allocates %v times", n)
	}
}

// BenchmarkCommitTake is what tracing costs a row: of one trace, and each of its
// own.
func BenchmarkCommitTake(b *testing.B) {
	rows := make([]*row, 1000)
	for n := range rows {
		rows[n] = tracedRow(n)
	}
	for name, distinct := range map[string]int{"one-trace": 1, "each-its-own": len(rows)} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for n := 0; b.Loop(); n++ {
				c := &Commit{Began: time.Time{}}
				for row := range rows {
					c.take(rows[row%distinct])
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(rows)), "ns/row")
		})
	}
}
