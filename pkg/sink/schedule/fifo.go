package schedule

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
