package ops

import (
	"slices"
	"sync"
	"time"

	"github.com/walstream/walstream/pkg/pipeline"
)

const (
	// historyInterval is shorter than an error's pause and the start behind it, for
	// as long as its message stays.
	historyInterval = 100 * time.Millisecond
	// historySize bounds what is kept: the newest incidents.
	historySize = 12
)

// incident is one thing that went wrong, told once however often it came back.
type incident struct {
	Message string    `json:"message"`
	First   time.Time `json:"first"`
	Last    time.Time `json:"last"`
	Times   int       `json:"times"`
	Now     bool      `json:"now"`
}

// history remembers what was wrong after it has passed: whoever looks in the
// morning sees why the night was slow.
type history struct {
	mu        sync.Mutex
	incidents []incident // the newest first, by when they last began
	restarts  uint64     // as counted at the last look
}

// watch takes a look at the progress until stop is closed.
func (h *history) watch(progress func() *pipeline.Progress, stop <-chan struct{}) {
	ticker := time.NewTicker(historyInterval)
	defer ticker.Stop()
	for {
		select {
		case <-stop:
			return
		case now := <-ticker.C:
			h.look(progress(), now)
		}
	}
}

// look notes what is wrong at one moment: why it does not stream, and what does
// not answer while it does.
func (h *history) look(p *pipeline.Progress, now time.Time) {
	restarts := failures(p)
	failed := restarts > h.restarts
	h.restarts = restarts
	switch p.State {
	case pipeline.Waiting, pipeline.Refused:
		h.note([]string{p.Reason}, "", now)
	case pipeline.Connecting, pipeline.Standby:
		// An attempt to connect carries the reason of the failure before it, which
		// goes on; other reasons are none.
		if failed {
			h.note([]string{p.Reason}, "", now)
		} else {
			h.note(nil, p.Reason, now)
		}
	case pipeline.Stopped, pipeline.Paused:
		h.note(nil, "", now)
	case pipeline.Snapshotting, pipeline.Streaming, pipeline.Draining:
		h.note(troubles(p), "", now)
	}
}

// failures are the starts after an error; waiting for the slot is none.
func failures(p *pipeline.Progress) (n uint64) {
	for reason, times := range p.Restarts {
		if reason != "slot-busy" {
			n += times
		}
	}
	return n
}

// troubles are what does not answer while it streams.
func troubles(p *pipeline.Progress) (current []string) {
	if p.Trouble != "" {
		current = append(current, "Kafka does not answer: "+p.Trouble)
	}
	if p.Health.Err != nil {
		current = append(current, p.Health.Err.Error())
	}
	if p.Silent {
		current = append(current, silence)
	}
	return current
}

// note says what is wrong at the moment. What only goes on begins no incident.
func (h *history) note(current []string, goesOn string, now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := range h.incidents {
		in := &h.incidents[i]
		if in.Now = in.Now && (in.Message == goesOn || slices.Contains(current, in.Message)); in.Now {
			in.Last = now
		}
	}
	for _, message := range current {
		in := incident{Message: message, First: now}
		if i := slices.IndexFunc(h.incidents, func(in incident) bool { return in.Message == message }); i >= 0 {
			if h.incidents[i].Now {
				continue
			}
			in = h.incidents[i]
			h.incidents = slices.Delete(h.incidents, i, i+1)
		}
		in.Last, in.Now = now, true
		in.Times++
		h.incidents = slices.Insert(h.incidents, 0, in)
	}
	h.incidents = h.incidents[:min(len(h.incidents), historySize)]
}

// list is never nil: it becomes a list in JSON.
func (h *history) list() []incident {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append([]incident{}, h.incidents...)
}
