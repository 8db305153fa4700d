package virtual

import (
	"context"
	"fmt"
	"net"
	"slices"
	"sync"
	"syscall"
	"time"
)

// Network carries connections between hosts and listeners in memory. It works
// inside a synctest bubble, where real sockets hang, and it can be broken in
// every way a network and the hosts on it break.
type Network struct {
	delay     time.Duration // of every byte, one way
	perSecond int           // bytes on each link; 0: no limit

	mu        sync.Mutex
	listeners map[string]*listener
	links     []*Link
	down      map[string]bool
	held      map[string]bool
}

// NewNetwork returns one without listeners; delay is how long a byte takes, and
// perSecond how many of them a link carries: 0 is no limit.
func NewNetwork(delay time.Duration, perSecond int) *Network {
	return &Network{delay: delay, perSecond: perSecond, listeners: map[string]*listener{}, down: map[string]bool{}, held: map[string]bool{}}
}

// Link is a connection between a host and a listener's address.
type Link struct {
	Host    *Host
	Address string
	up      *pipe // host to listener
	down    *pipe
	closed  [2]bool // by the host, by the listener's side; guarded by the network
}

// Ends of a link.
const (
	here = iota // the host
	there
)

// Host is a place that connections are made from. It lives once: a process that
// is killed comes back as another Host.
type Host struct {
	Name string
	net  *Network

	mu     sync.Mutex
	dead   bool
	frozen bool
}

// Host returns a new one.
func (n *Network) Host(name string) *Host { return &Host{Name: name, net: n} }

// Listen is net.Listen, as far as kfake and pgfake need it.
func (n *Network) Listen(_, address string) (net.Listener, error) {
	addr, err := net.ResolveTCPAddr("tcp", address)
	if err != nil {
		return nil, err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.listeners[address] != nil {
		return nil, &net.OpError{Op: "listen", Net: "tcp", Addr: addr, Err: syscall.EADDRINUSE}
	}
	l := &listener{net: n, addr: addr, accepted: make(chan net.Conn), closed: make(chan struct{})}
	n.listeners[address] = l
	return l, nil
}

// Down cuts an address off: its connections are gone, as after a crash, and new
// ones are refused until Up.
func (n *Network) Down(address string) {
	n.mu.Lock()
	n.down[address] = true
	n.mu.Unlock()
	n.Each(func(l *Link) bool { return l.Address == address }, (*Link).Reset)
}

// Up ends Down.
func (n *Network) Up(address string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.down, address)
}

// Hold keeps who connects to the addresses from being answered; links that are
// there are held one by one.
func (n *Network) Hold(addresses ...string) { n.setHeld(true, addresses) }

// LetGo ends Hold.
func (n *Network) LetGo(addresses ...string) { n.setHeld(false, addresses) }

func (n *Network) setHeld(held bool, addresses []string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, address := range addresses {
		n.held[address] = held
	}
}

// Each does something to the links that are chosen, and says to how many.
func (n *Network) Each(chosen func(*Link) bool, do func(*Link)) int {
	n.mu.Lock()
	var some []*Link
	for _, l := range n.links {
		if chosen(l) {
			some = append(some, l)
		}
	}
	n.mu.Unlock()
	for _, l := range some {
		do(l)
	}
	return len(some)
}

// Close ends everything, so that no goroutine is left waiting.
func (n *Network) Close() {
	n.Each(func(*Link) bool { return true }, (*Link).Reset)
}

// Reset breaks the connection; both sides hear of it at once.
func (l *Link) Reset() {
	l.up.breakWith(syscall.ECONNRESET)
	l.down.breakWith(syscall.ECONNRESET)
	l.close(here)
	l.close(there)
}

// ResetHere breaks it for the host; the listener's side hears nothing, ever.
func (l *Link) ResetHere() {
	l.up.loseReader()
	l.down.breakReader(syscall.ECONNRESET)
	l.up.breakWriter(syscall.ECONNRESET)
}

// ResetThere breaks it for the listener's side; the host hears nothing, ever.
func (l *Link) ResetThere() {
	l.down.loseReader()
	l.up.breakReader(syscall.ECONNRESET)
	l.down.breakWriter(syscall.ECONNRESET)
}

// hang up in order, as the kernel does for a process that is killed: what was
// written still arrives.
func (l *Link) hangUp() {
	l.Release()
	l.up.closeWriter()
	l.down.closeReader()
	l.close(here)
}

// Hold keeps bytes from arriving in either direction, until they are let go.
func (l *Link) Hold() {
	l.up.hold(true)
	l.down.hold(true)
}

// Release ends Hold: what was written meanwhile arrives.
func (l *Link) Release() {
	l.up.hold(false)
	l.down.hold(false)
}

// close one end; with both of them the link is forgotten.
func (l *Link) close(end int) {
	n := l.Host.net
	n.mu.Lock()
	defer n.mu.Unlock()
	if l.closed[end] = true; l.closed[1-end] {
		n.links = slices.DeleteFunc(n.links, func(other *Link) bool { return other == l })
	}
}

// ofHost chooses the links of a host.
func ofHost(h *Host) func(*Link) bool { return func(l *Link) bool { return l.Host == h } }

// Kill is kill -9: the kernel hangs up for the process, and what the process
// goes on to do reaches nobody.
func (h *Host) Kill() {
	h.die()
	h.net.Each(ofHost(h), (*Link).hangUp)
}

// Vanish is a power cut: nobody hears of it.
func (h *Host) Vanish() {
	h.die()
	h.net.Each(ofHost(h), (*Link).ResetHere)
}

func (h *Host) die() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.dead = true
}

// Freeze is how a paused process looks from outside: nothing comes from it, and
// nothing reaches it, until Thaw.
func (h *Host) Freeze() { h.freeze(true) }

// Thaw ends Freeze; what was under way arrives.
func (h *Host) Thaw() { h.freeze(false) }

func (h *Host) freeze(frozen bool) {
	h.mu.Lock()
	h.frozen = frozen
	h.mu.Unlock()
	do := (*Link).Release
	if frozen {
		do = (*Link).Hold
	}
	h.net.Each(ofHost(h), do)
}

func (h *Host) state() (dead, frozen bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.dead, h.frozen
}

// again is how soon a first packet that was not answered is sent again.
const again = time.Second

// DialContext connects to a listener. A frozen host waits in vain.
func (h *Host) DialContext(ctx context.Context, _, address string) (net.Conn, error) {
	refused := func(err error) error {
		return &net.OpError{Op: "dial", Net: "tcp", Addr: parse(address), Err: err}
	}
	n := h.net
	var l *listener
	down := false
	for {
		dead, frozen := h.state()
		if dead {
			return nil, refused(syscall.ENETUNREACH)
		}
		n.mu.Lock()
		held := n.held[address]
		l, down = n.listeners[address], n.down[address]
		n.mu.Unlock()
		if !frozen && !held {
			break
		}
		select {
		case <-ctx.Done():
			return nil, refused(ctx.Err())
		case <-time.After(again):
		}
	}
	if l == nil || down {
		return nil, refused(syscall.ECONNREFUSED)
	}
	link := &Link{Host: h, Address: address, up: newPipe(n.delay, n.perSecond), down: newPipe(n.delay, n.perSecond)}
	far := &conn{link: link, end: there, in: link.up, out: link.down, local: l.addr, remote: parse(h.Name)}
	select {
	case l.accepted <- far:
	case <-l.closed:
		return nil, refused(syscall.ECONNREFUSED)
	case <-ctx.Done():
		return nil, refused(ctx.Err())
	}
	n.mu.Lock()
	n.links = append(n.links, link)
	n.mu.Unlock()
	switch dead, frozen := h.state(); { // meanwhile
	case dead:
		link.hangUp()
	case frozen:
		link.Hold()
	}
	return &conn{link: link, end: here, in: link.down, out: link.up, local: far.remote, remote: l.addr}, nil
}

// address of anything that is not one of TCP.
type address string

func (address) Network() string  { return "virtual" }
func (a address) String() string { return string(a) }

func parse(s string) net.Addr {
	if addr, err := net.ResolveTCPAddr("tcp", s); err == nil && addr.IP != nil {
		return addr
	}
	return address(s)
}

// conn is one end of a link.
type conn struct {
	link          *Link
	end           int
	in, out       *pipe
	local, remote net.Addr
}

func (c *conn) Read(b []byte) (int, error) {
	n, err := c.in.read(b)
	return n, c.explain("read", err)
}

func (c *conn) Write(b []byte) (int, error) {
	n, err := c.out.write(b)
	return n, c.explain("write", err)
}

// Close hangs up: what was written still arrives.
func (c *conn) Close() error {
	c.out.closeWriter()
	c.in.closeReader()
	c.link.close(c.end)
	return nil
}

func (c *conn) LocalAddr() net.Addr  { return c.local }
func (c *conn) RemoteAddr() net.Addr { return c.remote }

func (c *conn) SetDeadline(t time.Time) error {
	c.in.setReadDeadline(t)
	c.out.setWriteDeadline(t)
	return nil
}

func (c *conn) SetReadDeadline(t time.Time) error {
	c.in.setReadDeadline(t)
	return nil
}

func (c *conn) SetWriteDeadline(t time.Time) error {
	c.out.setWriteDeadline(t)
	return nil
}

var _ net.Conn = (*conn)(nil)

// listener of an address.
type listener struct {
	net      *Network
	addr     net.Addr
	accepted chan net.Conn
	closed   chan struct{}
	once     sync.Once
}

func (l *listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.accepted:
		return c, nil
	case <-l.closed:
		return nil, fmt.Errorf("accept at %s: %w", l.addr, net.ErrClosed)
	}
}

func (l *listener) Close() error {
	l.once.Do(func() {
		close(l.closed)
		l.net.mu.Lock()
		defer l.net.mu.Unlock()
		delete(l.net.listeners, l.addr.String())
	})
	return nil
}

func (l *listener) Addr() net.Addr { return l.addr }
