package audit

import (
	"fmt"
	"runtime/debug"
	"runtime/metrics"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"
)

// The judge stays within its budget, however much it is given, and finds the one
// fault among it.
func TestMemoryIsBounded(t *testing.T) {
	const (
		n      = 300_000
		budget = 6 << 20
		// What is beside the sorters: names, groups, buffers of files, garbage.
		beside = 6 << 20
	)
	defer debug.SetGCPercent(debug.SetGCPercent(10))
	before := heapBytes()
	done, peak := make(chan struct{}), make(chan uint64)
	go func() {
		most := uint64(0)
		for {
			most = max(most, heapBytes())
			select {
			case <-done:
				peak <- most
				return
			case <-time.After(time.Millisecond):
			}
		}
	}()
	j := newJudge(scope{tables: 1}, t.TempDir(), budget)
	defer j.close()
	j.places = []place{{"t", 0}}
	value := make([]byte, 200)
	for i := range n {
		id := fmt.Appendf(nil, "event-%d", i)
		key := id[:len(id)-1]
		if err := j.addRow(&row{id: id, topic: "t", key: key, value: value, xid: uint32(i/10 + 10), tid: uint64(i), at: int64(i + 1)}); err != nil {
			t.Fatal(err)
		}
		if i == n/2+1 {
			continue
		}
		r := record{place: 0, offset: int64(i), id: id, key: key, value: value, lsn: pglogrepl.LSN(i/10 + 1000), ordinal: uint32(i%10 + 1), producer: 1}
		if err := j.addRecord(&r); err != nil {
			t.Fatal(err)
		}
	}
	result, err := j.judge(facts{due: dueness{all: true, next: 1 << 30}, covered: 1 << 40, until: 1 << 40, complete: true})
	close(done)
	most := <-peak
	if err != nil {
		t.Fatal(err)
	}
	compare(t, result, numbers{Verdict: Difference, Rows: n, Found: n - 1, Records: n - 1, Missing: 1, Torn: 1})
	t.Logf("%d rows and records are %d MB; %d MB went to disk; the heap grew by %.1f MB", n, 2*n*entryCodec.size>>20, result.Spilled>>20, float64(most-before)/(1<<20))
	if result.Spilled < 10*budget {
		t.Errorf("%d bytes were spilled: this proves nothing", result.Spilled)
	}
	if most-before > budget+beside {
		t.Errorf("the heap grew by %d bytes, the budget is %d", most-before, budget)
	}
}

func heapBytes() uint64 {
	sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}
