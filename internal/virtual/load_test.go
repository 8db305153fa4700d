package virtual

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/walstream/walstream/pkg/replication/pgfake"
)

// load is the application: it commits until its context ends, in bursts and
// with pauses, mostly single rows, now and then a hundred, seldom thousands. The
// WAL of other tables grows beside it.
type load struct {
	w       *world
	rng     *rand.Rand
	ids     int64
	seqs    map[string]int
	written int
}

func newLoad(w *world) *load {
	return &load{w: w, rng: rand.New(rand.NewPCG(w.seed, 2)), seqs: map[string]int{}}
}

func (l *load) run(ctx context.Context) {
	for ctx.Err() == nil {
		if l.rng.IntN(4) == 0 {
			l.w.postgres.Other(l.rng.IntN(100_000))
		}
		if l.written < 20_000 {
			l.commit(l.size())
		}
		pause := time.Duration(l.rng.ExpFloat64() * float64(pick(l.rng, time.Millisecond, 100*time.Millisecond, time.Second)))
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}

func (l *load) size() int {
	switch n := l.rng.IntN(100); {
	case n < 80:
		return 1
	case n < 96:
		return 2 + l.rng.IntN(100)
	}
	return 500 + l.rng.IntN(2500)
}

func (l *load) commit(size int) {
	number := len(l.w.committed)
	t := &transaction{}
	rows := make([]pgfake.Row, 0, size)
	padding := strings.Repeat("x", pick(l.rng, 0, 0, 0, 100, 2000))
	for index := range size {
		key := fmt.Sprint("account-", l.rng.IntN(12))
		l.seqs[key]++
		l.ids++
		t.keys, t.seqs = append(t.keys, key), append(t.seqs, l.seqs[key])
		rows = append(rows, pgfake.Row{
			l.ids,
			[16]byte{15: byte(index)},
			topicName, []byte(key),
			fmt.Appendf(nil, "%d %d %d %d %s", number, index, size, l.seqs[key], padding),
		})
	}
	l.written += size
	l.w.mu.Lock()
	l.w.committed = append(l.w.committed, t)
	l.w.mu.Unlock()
	t.Transaction = l.w.postgres.Commit(rows...)
}
