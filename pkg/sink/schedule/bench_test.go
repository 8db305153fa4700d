package schedule

import (
	"fmt"
	"testing"
	"time"

	"github.com/walstream/walstream/pkg/checkpoint"
)

// BenchmarkSchedule is what a row costs between the loop and the committer: a
// thousand rows wait and are taken at once. It allocates one Transaction.
func BenchmarkSchedule(b *testing.B) {
	for _, perTransaction := range []int{100, 1} {
		b.Run(fmt.Sprint(perTransaction, "-per-transaction"), func(b *testing.B) {
			s := New[*testRow](Options{
				Window: checkpoint.Limits{Events: 1 << 20, Bytes: 32 << 20}, CommitMaxBytes: 16 << 20, MaxTime: time.Second,
			})
			rows := make([]testRow, perTransaction)
			for n := range rows {
				rows[n].weight = 1024
			}
			end, now := &checkpoint.Edge{Covered: 1}, time.Now()
			b.ReportAllocs()
			b.ResetTimer()
			for n := 0; n < b.N; {
				for range 1000 / perTransaction {
					for m := range rows {
						s.Put(&rows[m])
						n++
					}
					s.End(end)
				}
				tx := s.Begin(now)
				for step := Rows; step == Rows; {
					_, step = tx.Take(now)
				}
				if _, err := tx.Answered(nil, now); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
