package sink

import (
	"fmt"
	"maps"
	"slices"
	"sync/atomic"

	"github.com/dustin/go-humanize"

	"github.com/walstream/walstream/pkg/decode"
)

// A policy that lets bad rows pass is meant for single rows. When a topic refuses
// every row (its settings were changed), or every row is bad (the writer was), it
// would put the whole stream aside, row by row. So bad rows are counted as long as
// none that could be published lies between them: for each topic, and for all rows
// together. After Config.PoisonLimit of them the next one stops the stream.
//
// What lies between them is decided by positions, not by time: rows are sent again,
// to find a bad one or after an error, and answers come later than the next rows.
// A row that Kafka has acknowledged ends the bad rows before it for good; one that
// was passed on and is not answered yet, only in this sink: if it fails, all comes
// again.

// RunawayError ends a stream in which a topic, or everything, is bad. It wraps what
// is wrong with the row that is one too many.
type RunawayError struct {
	Topic  string // empty: rows of all topics
	Rows   int    // that were let pass before
	Policy Policy
	Err    error
}

func (e *RunawayError) Error() string {
	of, done, after := "the stream", "left out (the log has the first of them)", ""
	if e.Topic != "" {
		of = fmt.Sprintf("topic %q", e.Topic)
	}
	if e.Policy == DeadLetter {
		done, after = "put aside", ", and walstream dead-letters retry publishes those put aside"
	}
	return fmt.Sprintf("%s; the %s rows of %s before it were bad too, with no good one between them, and were %s: "+
		"that is no single row, so it stops here; mend the topic or the writer and start again%s; --poison-limit lets more pass (0: any number)",
		e.Err, humanize.Comma(int64(e.Rows)), of, done, after)
}

func (e *RunawayError) Unwrap() error { return e.Err }

const (
	allTopics = ""   // no topic has this name
	runsKept  = 1000 // topics with bad rows since their last good one
)

// runs of bad rows.
type runs struct {
	any    atomic.Bool                  // there is one: promises look
	topics map[string][]decode.Position // rising, the newest ones, up to the limit
}

// extend the run of a topic, unless it has come to the limit. since is the newest row
// of it that was passed on as good by this sink.
func (r *runs) extend(topic string, at, since decode.Position, limit int) (full bool) {
	run := r.topics[topic]
	place, again := slices.BinarySearchFunc(run, at, decode.Position.Compare)
	if again || place == 0 && len(run) > 0 {
		return false // it was let pass before: here, or in a run that has ended
	}
	if len(run) >= limit {
		if run[0].Compare(since) >= 0 {
			return true
		}
		run = run[1:] // of what lies before since it will not be asked again
		place--
	}
	if r.topics == nil || run == nil && len(r.topics) >= runsKept {
		all := r.topics[allTopics]
		if r.topics = map[string][]decode.Position{}; all != nil {
			r.topics[allTopics] = all
		}
	}
	r.topics[topic] = slices.Insert(run, place, at)
	r.any.Store(true)
	return false
}

// end the runs that lie before a row of a topic that was published.
func (r *runs) end(topic string, at decode.Position) {
	for _, name := range [...]string{topic, allTopics} {
		run := r.topics[name]
		switch n, _ := slices.BinarySearchFunc(run, at, decode.Position.Compare); {
		case n > 0 && n == len(run):
			delete(r.topics, name)
		case n > 0:
			r.topics[name] = run[n:]
		}
	}
	r.any.Store(len(r.topics) > 0)
}

// longest of them.
func (r *runs) longest() (n int) {
	for run := range maps.Values(r.topics) {
		n = max(n, len(run))
	}
	return n
}

// published is told, inside a promise, of every row that Kafka has acknowledged.
func (p *poison) published(r *row) {
	if !p.runs.any.Load() || r.letterOf != nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.runs.end(r.record.Topic, r.position)
}

// runaway says whether a bad row that the policy would let pass is one too many.
func (f *front) runaway(r *row, fl *flaw, policy Policy) error {
	cfg := &f.claim.k.cfg
	limit := cfg.PoisonLimit
	if limit == 0 || cfg.OneShot != nil {
		return nil
	}
	p := &cfg.Seen.poison
	p.mu.Lock()
	defer p.mu.Unlock()
	// That a topic is not allowed is somebody's own word for all rows of it.
	if topic := r.record.Topic; topic != allTopics && fl.class != ClassNotListed {
		var since decode.Position
		if tp := f.topics[topic]; tp != nil {
			since = tp.passed
		}
		if p.runs.extend(topic, r.position, since, limit) {
			return &RunawayError{Topic: topic, Rows: limit, Policy: policy, Err: fl}
		}
	}
	if p.runs.extend(allTopics, r.position, f.passed, limit) {
		return &RunawayError{Rows: limit, Policy: policy, Err: fl}
	}
	return nil
}

// BadRun is how many bad rows there were since the last good one, of the topic with
// most of them or of all.
func (s *Seen) BadRun() int {
	s.poison.mu.Lock()
	defer s.poison.mu.Unlock()
	return s.poison.runs.longest()
}
