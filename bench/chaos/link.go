package main

import (
	"bufio"
	"fmt"
	"maps"
	"net"
	"sync"
	"time"
)

// link carries the connections to one server piece by piece, and breaks them: all
// of them by cut and swallow, until restore; or something is done at the very
// moment that a certain piece passes.
type link struct {
	Addr     string
	upstream string
	wire     wire

	mu       sync.Mutex
	listener net.Listener
	carried  map[*carried]bool
	refusing bool
	swallows [2]bool // by direction
	trap     *trap
	passed   map[string]int // pieces by name
	running  sync.WaitGroup
}

type direction int

const (
	requests direction = iota
	answers
)

// carried is one connection.
type carried struct {
	client, server net.Conn
	broken         [2]bool // something of this direction was swallowed
}

func (c *carried) close() {
	_ = c.client.Close()
	_ = c.server.Close()
}

// when a trap springs.
type when string

const (
	beforeRequest when = "before %s is forwarded"
	afterRequest  when = "after %s was forwarded"
	beforeAnswer  when = "before the answer to %s is given"
)

// trap does something when the nth piece of a name passes. The piece waits for it.
type trap struct {
	what string
	when when
	nth  int
	do   func()
	done chan struct{}
}

func (t *trap) String() string { return fmt.Sprintf(string(t.when), t.what) }

func startLink(addr, upstream string, wire wire) (*link, error) {
	l := &link{Addr: addr, upstream: upstream, wire: wire, carried: map[*carried]bool{}, passed: map[string]int{}}
	return l, l.listen()
}

func (l *link) listen() error {
	listener, err := net.Listen("tcp", l.Addr)
	if err != nil {
		return fmt.Errorf("listen for %s: %w", l.upstream, err)
	}
	l.listener = listener
	l.running.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return // closed
			}
			l.running.Go(func() { l.carry(client) })
		}
	})
	return nil
}

func (l *link) carry(client net.Conn) {
	server, err := net.DialTimeout("tcp", l.upstream, 2*time.Second)
	if err != nil {
		_ = client.Close()
		return
	}
	c := &carried{client: client, server: server}
	defer c.close()
	l.mu.Lock()
	l.carried[c] = true
	refused := l.refusing
	l.mu.Unlock()
	if refused {
		c.close() // it was on its way here when the link was cut
	}
	defer func() {
		l.mu.Lock()
		delete(l.carried, c)
		l.mu.Unlock()
	}()
	asked, answered := l.wire()
	var both sync.WaitGroup
	both.Go(func() { defer c.close(); l.pump(c, requests, client, server, asked) })
	both.Go(func() { defer c.close(); l.pump(c, answers, server, client, answered) })
	both.Wait()
}

func (l *link) pump(c *carried, d direction, from, to net.Conn, next cutter) {
	in := bufio.NewReaderSize(from, 64<<10)
	for {
		piece, what, err := next(in)
		if err != nil {
			return
		}
		before, after := beforeRequest, afterRequest
		if d == answers {
			before, after = beforeAnswer, ""
		}
		l.passes(what, before)
		if l.swallowed(c, d) {
			continue
		}
		if _, err := to.Write(piece); err != nil {
			return
		}
		l.passes(what, after)
	}
}

// passes springs the trap if it waits for this.
func (l *link) passes(what string, when when) {
	if what == "" || when == "" {
		return
	}
	l.mu.Lock()
	if when == beforeRequest {
		l.passed[what]++
	}
	t := l.trap
	if t == nil || t.what != what || t.when != when {
		l.mu.Unlock()
		return
	}
	if t.nth--; t.nth > 0 {
		l.mu.Unlock()
		return
	}
	l.trap = nil
	l.mu.Unlock()
	t.do()
	close(t.done)
}

// set a trap; a trap that was set before is gone.
func (l *link) set(what string, when when, nth int, do func()) *trap {
	t := &trap{what: what, when: when, nth: nth, do: do, done: make(chan struct{})}
	l.mu.Lock()
	l.trap = t
	l.mu.Unlock()
	return t
}

// take a trap away. It reports whether the trap has not sprung and never will.
func (l *link) take(t *trap) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.trap != t {
		return false
	}
	l.trap = nil
	return true
}

// swallowed: what has lost one piece gets none of the later ones either.
func (l *link) swallowed(c *carried, d direction) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	c.broken[d] = c.broken[d] || l.swallows[d]
	return c.broken[d]
}

// swallow everything in these directions; connections stay open and silent.
func (l *link) swallow(directions ...direction) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, d := range directions {
		l.swallows[d] = true
	}
}

// drop closes all connections; new ones are carried.
func (l *link) drop() {
	l.mu.Lock()
	open := maps.Clone(l.carried)
	l.mu.Unlock()
	for c := range open {
		c.close()
	}
}

// cut closes all connections and refuses new ones.
func (l *link) cut() {
	l.mu.Lock()
	l.refusing = true
	l.mu.Unlock()
	_ = l.listener.Close()
	l.drop()
}

// restore ends all faults. A connection of which something was swallowed is
// closed: neither end could make sense of the rest.
func (l *link) restore() error {
	l.mu.Lock()
	l.swallows = [2]bool{}
	refused := l.refusing
	l.refusing = false
	var broken []*carried
	for c := range l.carried {
		if c.broken[requests] || c.broken[answers] {
			broken = append(broken, c)
		}
	}
	l.mu.Unlock()
	for _, c := range broken {
		c.close()
	}
	if refused {
		return l.listen()
	}
	return nil
}

// close ends the link. A trap that holds a piece must have been let go.
func (l *link) close() {
	l.cut()
	l.running.Wait()
}

// counts of what has passed here and on another link, by name.
func (l *link) counts(other *link) map[string]int {
	sum := map[string]int{}
	for _, l := range []*link{l, other} {
		l.mu.Lock()
		for what, n := range l.passed {
			sum[what] += n
		}
		l.mu.Unlock()
	}
	return sum
}
