package main

import (
	"fmt"
	"io"
	"math"
	"os"
	"sync"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"

	"github.com/walstream/walstream/pkg/pipeline"
)

// isTerminal reports that people look at what is written there.
func isTerminal(w io.Writer) bool {
	file, ok := w.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}

// snapshotBar shows a snapshot under way, below the lines of the log, which go
// through it.
type snapshotBar struct {
	mu  sync.Mutex
	out io.Writer
	bar *progressbar.ProgressBar // nil: none is shown
}

// wantsBar: a snapshot may come, and a person reads the log.
func (c *Config) wantsBar(terminal bool) bool {
	return terminal && c.LogFormat != "json" && c.Snapshot != string(pipeline.SnapshotNever)
}

// Write takes whole lines; the bar comes back by itself.
func (b *snapshotBar) Write(line []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.wipe()
	return b.out.Write(line)
}

func (b *snapshotBar) wipe() {
	if b.bar != nil {
		_ = b.bar.Clear() // it is decoration
	}
}

// show how far it is; nil: none is under way.
func (b *snapshotBar) show(p *pipeline.SnapshotProgress, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if p == nil {
		b.wipe()
		b.bar = nil
		return
	}
	whole := int64(-1) // unknown: something that moves
	if p.Estimate > 0 {
		whole = max(p.Estimate, int64(p.Rows)) // the planner guesses
	}
	if b.bar == nil || b.bar.GetMax64() != whole {
		b.wipe()
		b.bar = progressbar.NewOptions64(whole, progressbar.OptionSetWriter(b.out), progressbar.OptionUseANSICodes(true), progressbar.OptionSetWidth(30),
			progressbar.OptionSetPredictTime(false), progressbar.OptionSetElapsedTime(false), progressbar.OptionSpinnerType(14))
	}
	text := fmt.Sprintf("snapshot: %d rows, %.0f/s", p.Rows, math.Round(p.Rate(now)))
	if left, ok := p.Remaining(now); ok {
		text += fmt.Sprintf(", about %s left", formatDuration(left.Round(time.Second)))
	}
	b.bar.Describe(text)
	_ = b.bar.Set64(int64(p.Rows))
}

// barInterval is how often the bar is drawn anew.
const barInterval = 200 * time.Millisecond

// follow draws until the returned function is called.
func (b *snapshotBar) follow(progress func() *pipeline.Progress) (stop func()) {
	end := make(chan struct{})
	var done sync.WaitGroup
	done.Go(func() {
		ticker := time.NewTicker(barInterval)
		defer ticker.Stop()
		for {
			select {
			case <-end:
				b.show(nil, time.Now())
				return
			case now := <-ticker.C:
				b.show(progress().Snapshot, now)
			}
		}
	})
	return func() { close(end); done.Wait() }
}
