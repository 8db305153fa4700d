package sink

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"time"
)

// Once the slot may be another's, nothing of what is under way reaches Kafka: no
// record, and no claim that would fence the other.
func TestNothingIsWrittenOverALapsedSlot(t *testing.T) {
	everyBroker(t, func(t *testing.T, brokers []string) {
		lapsed := errors.New("lapsed")
		var over atomic.Bool
		check := func() error {
			if over.Load() {
				return lapsed
			}
			return nil
		}
		k := open(t, testConfig(t, brokers))
		c := k.NewClaim(check)
		defer c.Close()
		ctx := within(t, 20*time.Second)
		if err := c.Take(ctx, 0); err != nil {
			t.Fatal(err)
		}
		successor := claim(t, open(t, k.cfg))
		over.Store(true)
		short, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		if err := c.Take(short, 1); err == nil {
			t.Fatal("a lane was taken")
		} else if !Retriable(err) {
			t.Errorf("it asks for a person: %v", err)
		}
		if err := successor.Write(ctx, baseRecord(k.cfg.Pipeline).With(edgeAt(100))); err != nil {
			t.Errorf("the successor was disturbed: %v", err)
		}
	})
}

func TestGuardedConnection(t *testing.T) {
	lapsed := errors.New("lapsed")
	var err error
	near, far := net.Pipe()
	defer func() { _ = far.Close() }()
	conn, _ := guarded(func(context.Context, string, string) (net.Conn, error) { return near, nil }, func() error { return err })(t.Context(), "", "")
	go func() { _, _ = conn.Write([]byte("a")) }()
	got := make([]byte, 1)
	if n, readErr := far.Read(got); n != 1 || readErr != nil {
		t.Errorf("read %d (%v)", n, readErr)
	}
	err = lapsed
	if n, writeErr := conn.Write([]byte("b")); n != 0 || !errors.Is(writeErr, lapsed) {
		t.Errorf("wrote %d (%v)", n, writeErr)
	}
}
