package audit

import (
	"bufio"
	"container/heap"
	"fmt"
	"io"
	"os"
	"slices"
	"unsafe"
)

// codec says how a T is ordered, and how it is written in size bytes.
type codec[T any] struct {
	size    int
	put     func([]byte, *T)
	get     func([]byte, *T)
	compare func(a, b T) int
}

// sorter orders any number of values in bounded memory: it sorts what its budget
// holds, writes that to a temporary file as a run, and merges the runs when it is
// read. What fits the budget touches no disk.
//
// A sorter is filled by add, read once by each, and closed.
type sorter[T any] struct {
	codec[T]
	dir    string
	budget int // bytes
	buf    []T
	file   *os.File
	named  bool  // the file still has a name
	end    int64 // of the file
	runs   []run
	spill  int64 // bytes written, for the report
}

// run is a sorted stretch of the file.
type run struct{ start, end int64 }

const (
	// leastRead is the smallest buffer a run is read through: below it the disk
	// seeks more than it reads. It bounds how many runs are merged at once.
	leastRead = 16 << 10
	mostRead  = 1 << 20
)

func newSorter[T any](c codec[T], dir string, budget int) *sorter[T] {
	return &sorter[T]{codec: c, dir: dir, budget: budget}
}

// held is how many values the budget holds. The slice grows by doubling, and
// while it grows the old one is there too.
func (s *sorter[T]) held() int {
	var v T
	return max(s.budget*2/3/int(unsafe.Sizeof(v)), 4)
}

func (s *sorter[T]) add(v T) error {
	if len(s.buf) == cap(s.buf) {
		if cap(s.buf) >= s.held() {
			if err := s.flush(); err != nil {
				return err
			}
		} else {
			grown := make([]T, len(s.buf), min(max(2*cap(s.buf), 1024), s.held()))
			copy(grown, s.buf)
			s.buf = grown
		}
	}
	s.buf = append(s.buf, v)
	return nil
}

func (s *sorter[T]) sort() {
	slices.SortFunc(s.buf, s.compare)
}

// flush writes what is held as a run.
func (s *sorter[T]) flush() error {
	s.sort()
	w, err := s.writer()
	if err != nil {
		return err
	}
	for i := range s.buf {
		if err := w.put(&s.buf[i]); err != nil {
			return err
		}
	}
	s.buf = s.buf[:0]
	return w.close()
}

// each calls do with the values in order, and gives up what they took.
func (s *sorter[T]) each(do func(*T) error) error {
	defer s.close()
	if s.file == nil {
		s.sort()
		for i := range s.buf {
			if err := do(&s.buf[i]); err != nil {
				return err
			}
		}
		return nil
	}
	if err := s.flush(); err != nil {
		return err
	}
	s.buf = nil
	fanIn := max(s.budget/leastRead-1, 2)
	for len(s.runs) > fanIn {
		w, err := s.writer()
		if err != nil {
			return err
		}
		first := s.runs[:fanIn]
		if err := s.merge(first, w.put); err != nil {
			return err
		}
		s.runs = slices.Clone(s.runs[fanIn:])
		if err := w.close(); err != nil {
			return err
		}
	}
	return s.merge(s.runs, do)
}

// close removes the file.
func (s *sorter[T]) close() {
	s.buf, s.runs = nil, nil
	if s.file != nil {
		_ = s.file.Close() // nobody reads it again
		if s.named {
			_ = os.Remove(s.file.Name())
		}
		s.file = nil
	}
}

// merge calls do with the values of the runs, in order.
func (s *sorter[T]) merge(runs []run, do func(*T) error) error {
	buffer := min(max(s.budget/(len(runs)+1), leastRead), mostRead)
	m := merger[T]{compare: s.compare}
	for _, r := range runs {
		h := &head[T]{in: bufio.NewReaderSize(io.NewSectionReader(s.file, r.start, r.end-r.start), buffer)}
		more, err := s.next(h)
		if err != nil {
			return err
		}
		if more {
			m.heads = append(m.heads, h)
		}
	}
	heap.Init(&m)
	for len(m.heads) > 0 {
		h := m.heads[0]
		if err := do(&h.value); err != nil {
			return err
		}
		more, err := s.next(h)
		if err != nil {
			return err
		}
		if more {
			heap.Fix(&m, 0)
		} else {
			heap.Pop(&m)
		}
	}
	return nil
}

// next reads the run's next value.
func (s *sorter[T]) next(h *head[T]) (bool, error) {
	raw, err := h.in.Peek(s.size)
	if err == io.EOF && len(raw) == 0 {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("read a temporary file: %w", err)
	}
	s.get(raw, &h.value)
	_, err = h.in.Discard(s.size)
	return true, err
}

// head of a run that is being merged.
type head[T any] struct {
	in    *bufio.Reader
	value T
}

// merger is a heap.Interface over the heads.
type merger[T any] struct {
	heads   []*head[T]
	compare func(a, b T) int
}

func (m *merger[T]) Len() int           { return len(m.heads) }
func (m *merger[T]) Less(i, j int) bool { return m.compare(m.heads[i].value, m.heads[j].value) < 0 }
func (m *merger[T]) Swap(i, j int)      { m.heads[i], m.heads[j] = m.heads[j], m.heads[i] }
func (m *merger[T]) Push(h any)         { m.heads = append(m.heads, h.(*head[T])) }
func (m *merger[T]) Pop() any {
	last := m.heads[len(m.heads)-1]
	m.heads = m.heads[:len(m.heads)-1]
	return last
}

// runWriter appends a run to the file.
type runWriter[T any] struct {
	s     *sorter[T]
	out   *bufio.Writer
	start int64
	n     int64
	raw   []byte
}

func (s *sorter[T]) writer() (*runWriter[T], error) {
	if s.file == nil {
		file, err := os.CreateTemp(s.dir, "walstream-audit-*")
		if err != nil {
			return nil, fmt.Errorf("make a temporary file: %w", err)
		}
		s.file = file
		// Where the system allows it, a name that is gone leaves nothing behind,
		// however the process ends; where not, close removes it.
		s.named = os.Remove(file.Name()) != nil
	}
	return &runWriter[T]{s: s, out: bufio.NewWriterSize(io.NewOffsetWriter(s.file, s.end), 256<<10), start: s.end, raw: make([]byte, s.size)}, nil
}

func (w *runWriter[T]) put(v *T) error {
	w.s.codec.put(w.raw, v)
	w.n += int64(len(w.raw))
	if _, err := w.out.Write(w.raw); err != nil {
		return fmt.Errorf("write a temporary file: %w", err)
	}
	return nil
}

func (w *runWriter[T]) close() error {
	if err := w.out.Flush(); err != nil {
		return fmt.Errorf("write a temporary file: %w", err)
	}
	w.s.end, w.s.spill = w.start+w.n, w.s.spill+w.n
	w.s.runs = append(w.s.runs, run{w.start, w.start + w.n})
	return nil
}
