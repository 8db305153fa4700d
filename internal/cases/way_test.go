package cases

import (
	"io"
	"net"
	"sync"
	"testing"
)

// way is an address that leads where it is told: as a name does that moves to
// another host, or a machine that goes and takes its word for it along.
type way struct {
	addr string

	mu       sync.Mutex
	upstream string
	vanished bool
	carried  []net.Conn
}

func newWay(t *testing.T, upstream string) *way {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &way{addr: listener.Addr().String(), upstream: upstream}
	t.Cleanup(func() {
		_ = listener.Close()
		w.mu.Lock()
		defer w.mu.Unlock()
		for _, conn := range w.carried {
			_ = conn.Close()
		}
	})
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			go w.carry(client)
		}
	}()
	return w
}

// leads says where new connections go.
func (w *way) leads(upstream string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.upstream = upstream
}

// vanish: whatever comes from a client is dropped from now on, its end included. The
// server's connections stay open and silent until the end of the test.
func (w *way) vanish() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.vanished = true
}

func (w *way) gone() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.vanished
}

func (w *way) carry(client net.Conn) {
	defer func() { _ = client.Close() }()
	w.mu.Lock()
	upstream := w.upstream
	w.mu.Unlock()
	server, err := net.Dial("tcp", upstream)
	if err != nil {
		return
	}
	w.mu.Lock()
	w.carried = append(w.carried, server)
	w.mu.Unlock()
	go func() {
		_, _ = io.Copy(client, server)
		_ = client.Close()
	}()
	_, _ = io.Copy(unlessGone{w, server}, client)
	if !w.gone() {
		_ = server.Close()
	}
}

type unlessGone struct {
	*way
	to io.Writer
}

func (u unlessGone) Write(p []byte) (int, error) {
	if u.gone() {
		return len(p), nil
	}
	return u.to.Write(p)
}
