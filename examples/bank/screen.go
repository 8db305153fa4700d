package main

import (
	"fmt"
	"io"
	"os"
	"sync"

	"golang.org/x/term"
)

// screen is where everything but the result goes. On a terminal the line of the
// moment is drawn over; elsewhere every line stays.
type screen struct {
	mu       sync.Mutex
	out      io.Writer
	terminal *os.File // nil when out is none
	drawn    bool     // the last line may be drawn over
}

func newScreen(out *os.File) *screen {
	s := &screen{out: out}
	if term.IsTerminal(int(out.Fd())) {
		s.terminal = out
	}
	return s
}

// line writes a line that stays.
func (s *screen) line(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.drawn {
		fmt.Fprintln(s.out)
		s.drawn = false
	}
	fmt.Fprintf(s.out, format+"\n", args...)
}

// moment writes a line that the next moment takes the place of.
func (s *screen) moment(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.terminal == nil {
		fmt.Fprintln(s.out, text)
		return
	}
	// A line that wraps could not be drawn over.
	if width, _, err := term.GetSize(int(s.terminal.Fd())); err == nil && width > 0 {
		text = text[:min(len(text), width-1)]
	}
	fmt.Fprint(s.out, "\r\x1b[K"+text)
	s.drawn = true
}
