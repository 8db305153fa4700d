package sink

import (
	"sync"

	"github.com/walstream/walstream/pkg/checkpoint"
)

// backlog is what waits between the loop, which puts, and the committer, which
// takes. Neither waits for the other. It holds no more than the ledger's window.
//
//	[row row row end][row row end][row row ...
//	 whole[0]         whole[1]     rest
type backlog struct {
	wake chan struct{} // one slot

	mu      sync.Mutex
	entries fifo[entry]
	whole   fifo[int] // what is left of each complete transaction, by weight
	rest    amount    // what is left of the one that is not
	enough  amount    // of the rest to wake the committer for
	idle    checkpoint.Edge
	over    bool // nothing more comes: a row was refused before sending
}

// amount of rows.
type amount struct{ rows, weight int }

func (a amount) reaches(b amount) bool { return a.rows >= b.rows || a.weight >= b.weight }

// work is what the committer may do next.
type work int

const (
	workNone work = iota
	workRows      // a transaction is complete, or enough of one waits
	workIdle      // a checkpoint of idle time
	workOver      // nothing ever again
)

func newBacklog() *backlog { return &backlog{wake: make(chan struct{}, 1)} }

func (b *backlog) signal() {
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

// put adds an entry. It never blocks.
func (b *backlog) put(e entry) {
	b.mu.Lock()
	b.entries.push(e)
	if e.end != nil {
		b.whole.push(b.rest.weight)
		b.rest = amount{}
		if e.end.Covered >= b.idle.Covered {
			b.idle = checkpoint.Edge{} // it is passed
		}
	} else {
		b.rest.rows++
		b.rest.weight += e.row.weight
	}
	wake := e.end != nil || b.rest.reaches(b.enough)
	b.mu.Unlock()
	if wake {
		b.signal()
	}
}

// putIdle replaces the position of idle time to be made durable.
func (b *backlog) putIdle(edge checkpoint.Edge) {
	b.mu.Lock()
	b.idle = edge
	b.mu.Unlock()
	b.signal()
}

// end says that nothing more will be put.
func (b *backlog) end() {
	b.mu.Lock()
	b.over = true
	b.mu.Unlock()
	b.signal()
}

// next says what there is to do. With workNone, wake tells when to ask again:
// also when so much of an incomplete transaction waits.
func (b *backlog) next(enough amount) work {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.enough = enough
	switch {
	case b.whole.len() > 0:
		return workRows
	case b.over:
		return workOver
	case b.rest.reaches(enough):
		return workRows
	case b.idle.Covered != 0:
		return workIdle
	}
	return workNone
}

// takeIdle returns the position of idle time, once.
func (b *backlog) takeIdle() checkpoint.Edge {
	b.mu.Lock()
	defer b.mu.Unlock()
	edge := b.idle
	b.idle = checkpoint.Edge{}
	return edge
}

// fitting returns how many transactions are complete and fit into so much weight
// together; the first one always does.
func (b *backlog) fitting(weight int) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	for n := range b.whole.len() {
		if weight -= *b.whole.at(n); weight < 0 {
			return max(n, 1)
		}
	}
	return b.whole.len()
}

// take moves the next entries into buf, up to the end of the transaction at hand
// or up to the weight of a chunk. Of a transaction that is not complete it takes
// nothing unless there is enough; over means that there never will be.
func (b *backlog) take(buf []entry, enough amount) (taken []entry, over bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.enough = enough
	if b.whole.len() == 0 && (b.over || !b.rest.reaches(enough)) {
		return nil, b.over
	}
	taken = buf[:0]
	for weight := 0; b.entries.len() > 0 && len(taken) < cap(buf) && weight < chunkWeight; {
		e := b.entries.pop()
		taken = append(taken, e)
		if e.end != nil {
			b.whole.pop()
			break
		}
		weight += e.row.weight
		if b.whole.len() > 0 {
			*b.whole.at(0) -= e.row.weight
		} else {
			b.rest.rows--
			b.rest.weight -= e.row.weight
		}
	}
	return taken, false
}

// remaining weight of the transaction at hand; unknown while it is not complete.
func (b *backlog) remaining() (weight int, known bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.whole.len() == 0 {
		return 0, false
	}
	return *b.whole.at(0), true
}

// fifo keeps its memory, and nothing in it that was popped.
type fifo[T any] struct {
	items []T
	head  int
}

func (f *fifo[T]) len() int    { return len(f.items) - f.head }
func (f *fifo[T]) at(i int) *T { return &f.items[f.head+i] }

func (f *fifo[T]) push(item T) {
	if len(f.items) == cap(f.items) && f.head > len(f.items)/2 {
		n := copy(f.items, f.items[f.head:])
		clear(f.items[n:])
		f.items, f.head = f.items[:n], 0
	}
	f.items = append(f.items, item)
}

func (f *fifo[T]) pop() T {
	var none T
	item := f.items[f.head]
	f.items[f.head] = none
	if f.head++; f.head == len(f.items) {
		f.items, f.head = f.items[:0], 0
	}
	return item
}
