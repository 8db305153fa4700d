package virtual

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

// socketBuffer is what may be under way in one direction.
const socketBuffer = 256 << 10

// pipe carries bytes in one direction. Either end can be broken alone: then the
// other hears nothing of it, and waits.
type pipe struct {
	delay     time.Duration
	perSecond int // bytes; 0: no limit

	mu      sync.Mutex
	changed chan struct{} // closed at every change, and made anew
	chunks  []chunk
	size    int
	held    bool
	eof     bool      // the writer has hung up
	lost    bool      // nobody reads any more, and nobody says so
	busy    time.Time // until when bytes are sent, at perSecond

	readErr, writeErr           error
	readDeadline, writeDeadline time.Time
}

// chunk of bytes that arrive at the same time.
type chunk struct {
	at   time.Time
	data []byte
}

func newPipe(delay time.Duration, perSecond int) *pipe {
	return &pipe{delay: delay, perSecond: perSecond, changed: make(chan struct{})}
}

// change the state and tell who waits for it.
func (p *pipe) change(do func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	do()
	p.tell()
}

func (p *pipe) tell() {
	close(p.changed)
	p.changed = make(chan struct{})
}

// wait for a change, or until one of the times that are set.
func (p *pipe) wait(times ...time.Time) {
	var first time.Time
	for _, t := range times {
		if !t.IsZero() && (first.IsZero() || t.Before(first)) {
			first = t
		}
	}
	changed := p.changed
	p.mu.Unlock()
	defer p.mu.Lock()
	if first.IsZero() {
		<-changed
		return
	}
	timer := time.NewTimer(time.Until(first))
	defer timer.Stop()
	select {
	case <-changed:
	case <-timer.C:
	}
}

func passed(deadline time.Time) bool { return !deadline.IsZero() && !time.Now().Before(deadline) }

func (p *pipe) read(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for {
		var arrival time.Time
		switch {
		case p.readErr != nil:
			return 0, p.readErr
		case passed(p.readDeadline):
			return 0, os.ErrDeadlineExceeded
		case p.held:
		case len(p.chunks) == 0 && p.eof:
			return 0, io.EOF
		case len(p.chunks) > 0:
			if arrival = p.chunks[0].at; passed(arrival) {
				return p.take(b), nil
			}
		}
		p.wait(arrival, p.readDeadline)
	}
}

// take what has arrived.
func (p *pipe) take(b []byte) (n int) {
	for n < len(b) && len(p.chunks) > 0 && passed(p.chunks[0].at) {
		m := copy(b[n:], p.chunks[0].data)
		n += m
		if p.chunks[0].data = p.chunks[0].data[m:]; len(p.chunks[0].data) == 0 {
			p.chunks = p.chunks[1:]
		}
	}
	p.size -= n
	p.tell() // there is room
	return n
}

func (p *pipe) write(b []byte) (n int, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for n < len(b) || n == 0 {
		room := socketBuffer - p.size
		switch {
		case p.writeErr != nil:
			return n, p.writeErr
		case passed(p.writeDeadline):
			return n, os.ErrDeadlineExceeded
		case len(b) == 0:
			return 0, nil
		case room > 0:
			part := b[n:min(len(b), n+room)]
			n += len(part)
			p.size += len(part)
			if p.lost {
				continue
			}
			at := p.arrival(len(part))
			if last := len(p.chunks) - 1; last >= 0 && p.chunks[last].at.Equal(at) {
				p.chunks[last].data = append(p.chunks[last].data, part...)
			} else {
				p.chunks = append(p.chunks, chunk{at: at, data: append([]byte(nil), part...)})
			}
			p.tell()
			continue
		}
		p.wait(p.writeDeadline)
	}
	return n, nil
}

// arrival of bytes that are sent now, behind those that are under way.
func (p *pipe) arrival(size int) time.Time {
	if p.perSecond == 0 {
		return time.Now().Add(p.delay)
	}
	if now := time.Now(); p.busy.Before(now) {
		p.busy = now
	}
	p.busy = p.busy.Add(time.Duration(size) * time.Second / time.Duration(p.perSecond))
	return p.busy.Add(p.delay)
}

// breakWith ends both ends at once.
func (p *pipe) breakWith(err error) {
	p.breakReader(err)
	p.breakWriter(err)
}

func (p *pipe) breakReader(err error) {
	p.change(func() { p.readErr = firstOf(p.readErr, err); p.chunks = nil })
}

func (p *pipe) breakWriter(err error) { p.change(func() { p.writeErr = firstOf(p.writeErr, err) }) }

func firstOf(before, err error) error {
	if before != nil {
		return before
	}
	return err
}

// loseReader: what is written from now on, and what has not arrived, is lost.
func (p *pipe) loseReader() { p.change(func() { p.lost, p.chunks = true, nil }) }

func (p *pipe) closeWriter() {
	p.change(func() { p.eof = true; p.writeErr = firstOf(p.writeErr, net.ErrClosed) })
}

// closeReader: the writer hears of it when it writes.
func (p *pipe) closeReader() {
	p.change(func() {
		p.readErr = firstOf(p.readErr, net.ErrClosed)
		p.writeErr = firstOf(p.writeErr, syscall.EPIPE)
		p.chunks = nil
	})
}

func (p *pipe) hold(held bool)               { p.change(func() { p.held = held }) }
func (p *pipe) setReadDeadline(t time.Time)  { p.change(func() { p.readDeadline = t }) }
func (p *pipe) setWriteDeadline(t time.Time) { p.change(func() { p.writeDeadline = t }) }

// explain dresses an error the way package net does.
func (c *conn) explain(op string, err error) error {
	if err == nil || errors.Is(err, io.EOF) {
		return err
	}
	return &net.OpError{Op: op, Net: "tcp", Source: c.local, Addr: c.remote, Err: err}
}
