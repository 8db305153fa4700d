package main

import (
	"context"
	"os"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"
)

// Two signals within a moment are one: timeout(1) sends one to its child and one
// to the group. A later one leaves at once.
func TestSecondSignal(t *testing.T) {
	for _, c := range []struct {
		name   string
		pauses []time.Duration // before each signal
		leaves bool
	}{
		{"one", []time.Duration{time.Hour}, false},
		{"twice at once", []time.Duration{0, 0}, false},
		{"three times within a moment", []time.Duration{0, time.Millisecond, 900 * time.Millisecond}, false},
		{"a second one later", []time.Duration{0, sameSignal}, true},
		{"twice at once, and again", []time.Duration{0, 0, time.Minute}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, stop := context.WithCancel(t.Context())
				signals := make(chan os.Signal, 2)
				left := make(chan bool, 1)
				done := make(chan struct{})
				go func() {
					defer close(done)
					if heedSignals(ctx, signals, stop, zerolog.Nop()) {
						left <- true
					}
				}()
				for _, pause := range c.pauses {
					time.Sleep(pause)
					synctest.Wait()
					signals <- syscall.SIGTERM
				}
				synctest.Wait()
				if ctx.Err() == nil {
					t.Error("not asked to stop")
				}
				if got := len(left) == 1; got != c.leaves {
					t.Errorf("left at once: %v", got)
				}
				if !c.leaves { // let the goroutine go
					time.Sleep(sameSignal)
					signals <- os.Interrupt
				}
				<-done
			})
		})
	}
	t.Run("none", func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		stop()
		if heedSignals(ctx, nil, func() { t.Error("asked to stop") }, zerolog.Nop()) {
			t.Error("left")
		}
	})
}
