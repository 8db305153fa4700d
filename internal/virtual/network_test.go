package virtual

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// link is a connection with both of its ends.
type ends struct {
	network   *Network
	host      *Host
	near, far net.Conn
}

const testAddress = "127.0.0.1:1"

func connected(t *testing.T) *ends {
	t.Helper()
	e := &ends{network: NewNetwork(10*time.Millisecond, 1000)}
	l, err := e.network.Listen("tcp", testAddress)
	if err != nil {
		t.Fatal(err)
	}
	accepted := make(chan net.Conn, 1)
	go func() {
		defer close(accepted)
		if c, err := l.Accept(); err == nil {
			accepted <- c
		}
	}()
	e.host = e.network.Host("host")
	if e.near, err = e.host.DialContext(context.Background(), "tcp", testAddress); err != nil {
		t.Fatal(err)
	}
	e.far = <-accepted
	return e
}

// hears what the far end hears of within a minute, and after how long.
func hears(c net.Conn) (string, time.Duration) {
	began := time.Now()
	_ = c.SetReadDeadline(began.Add(time.Minute))
	data := make([]byte, 100)
	n, err := c.Read(data)
	took := time.Since(began)
	switch {
	case err == nil:
		return string(data[:n]), took
	case errors.Is(err, io.EOF):
		return "EOF", took
	case errors.Is(err, os.ErrDeadlineExceeded):
		return "nothing", took
	case errors.Is(err, syscall.ECONNRESET):
		return "reset", took
	}
	return err.Error(), took
}

func TestWhatTheOtherEndHears(t *testing.T) {
	for name, c := range map[string]struct {
		do          func(e *ends)
		near, far   string
		nearWriteOK bool
	}{
		"nothing happens":    {func(*ends) {}, "nothing", "sent", true},
		"closed":             {func(e *ends) { _ = e.near.Close() }, "closed", "sent", false},
		"killed":             {func(e *ends) { e.host.Kill() }, "closed", "sent", false},
		"gone without word":  {func(e *ends) { e.host.Vanish() }, "reset", "nothing", false},
		"paused":             {func(e *ends) { e.host.Freeze() }, "nothing", "nothing", true},
		"paused, then woken": {func(e *ends) { e.host.Freeze(); time.Sleep(time.Minute); e.host.Thaw() }, "nothing", "sent", true},
		"reset":              {func(e *ends) { e.network.Down(testAddress) }, "reset", "reset", false},
		"lost here": {
			func(e *ends) { e.network.Each(ofHost(e.host), (*Link).ResetHere) }, "reset", "nothing", false,
		},
		"lost there": {
			func(e *ends) { e.network.Each(ofHost(e.host), (*Link).ResetThere) }, "nothing", "reset", true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := connected(t)
				defer e.network.Close()
				if _, err := e.near.Write([]byte("sent")); err != nil {
					t.Fatal(err)
				}
				c.do(e)
				near, _ := hears(e.near)
				if errors.Is(errOf(e.near), net.ErrClosed) {
					near = "closed"
				}
				far, _ := hears(e.far)
				if near != c.near || far != c.far {
					t.Errorf("the near end hears %q, the far end %q; want %q and %q", near, far, c.near, c.far)
				}
				if _, err := e.near.Write([]byte("more")); (err == nil) != c.nearWriteOK {
					t.Errorf("writing at the near end: %v", err)
				}
			})
		})
	}
}

// errOf reading at once.
func errOf(c net.Conn) error {
	_ = c.SetReadDeadline(time.Now())
	_, err := c.Read(make([]byte, 1))
	return err
}

func TestBytesTakeTheirTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := connected(t)
		defer e.network.Close()
		if _, err := e.near.Write(make([]byte, 100)); err != nil {
			t.Fatal(err)
		}
		// 100 bytes at 1,000 a second, and 10 ms on the way.
		if _, took := hears(e.far); took != 110*time.Millisecond {
			t.Errorf("they took %s", took)
		}
	})
}

func TestAFullLinkBlocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := connected(t)
		defer e.network.Close()
		_ = e.near.SetWriteDeadline(time.Now().Add(time.Second))
		n, err := e.near.Write(make([]byte, socketBuffer+1))
		if n != socketBuffer || !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("wrote %d bytes: %v", n, err)
		}
	})
}

func TestDialing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := connected(t)
		defer e.network.Close()
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		if _, err := e.host.DialContext(ctx, "tcp", "127.0.0.1:2"); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("nobody listens: %v", err)
		}
		e.network.Hold(testAddress)
		began := time.Now()
		if _, err := e.host.DialContext(ctx, "tcp", testAddress); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != 5*time.Second {
			t.Errorf("out of reach: %v after %s", err, time.Since(began))
		}
	})
}
