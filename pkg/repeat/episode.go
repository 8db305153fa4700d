package repeat

import "time"

const (
	// firstPause before a trouble that goes on is told again; each pause is twice
	// the one before.
	firstPause = time.Minute
	maxPause   = time.Hour
	// maxTexts told as soon as they come, in an episode.
	maxTexts = 8
)

// Episode of a trouble, from its first moment until it has been well for Calm. The
// zero value is one that has not begun, and is over as soon as it is well. For one
// goroutine.
type Episode struct {
	// Calm is how long it must have been well to be over.
	Calm time.Duration

	since  time.Time // zero: not begun
	again  time.Time // the first trouble since it was well
	count  int
	texts  map[string]struct{}
	next   time.Time // when a trouble that says nothing new is told
	pause  time.Duration
	well   time.Time // since when it has been; zero: it is not
	said   bool      // the last line told of trouble
	hidden bool      // there was trouble since the last line
}

// Trouble notes one; true says that it is to be told. What it is called decides
// whether it is new.
func (e *Episode) Trouble(text string, now time.Time) (tell bool) {
	if e.settled(now) {
		*e = Episode{Calm: e.Calm}
	}
	if e.since.IsZero() {
		e.since, e.pause, e.next = now, firstPause, now.Add(firstPause)
		e.texts = map[string]struct{}{}
	}
	if !e.well.IsZero() || e.count == 0 {
		e.again, e.well = now, time.Time{}
	}
	e.count++
	if !e.said && now.Sub(e.again) >= firstPause {
		tell = true
	}
	if _, known := e.texts[text]; !known && len(e.texts) < maxTexts {
		e.texts[text] = struct{}{}
		tell = true
	}
	if !now.Before(e.next) {
		tell = true
		e.pause = min(2*e.pause, maxPause)
		e.next = now.Add(e.pause)
	}
	e.said, e.hidden = e.said || tell, !tell
	return tell
}

// Well notes that the trouble seems to be over; true says that this is to be told.
func (e *Episode) Well(now time.Time) (tell bool) {
	if e.since.IsZero() || !e.well.IsZero() {
		return false
	}
	e.well = now
	if !e.said {
		return false
	}
	e.said, e.hidden = false, false
	return true
}

// Over is asked now and then. True says, once for an episode, that it is over and
// that it had more trouble than the lines have told.
func (e *Episode) Over(now time.Time) (tell bool) {
	if !e.settled(now) {
		return false
	}
	tell, e.hidden = e.hidden, false
	return tell
}

// settled: it has been well for long enough.
func (e *Episode) settled(now time.Time) bool {
	return !e.well.IsZero() && now.Sub(e.well) >= e.Calm
}

// Open reports that there is trouble, or was too shortly ago to be over.
func (e *Episode) Open(now time.Time) bool { return !e.since.IsZero() && !e.settled(now) }

// Silent reports that the last line said it is well, so what is going on need not
// be told.
func (e *Episode) Silent(now time.Time) bool { return e.Open(now) && !e.said }

// Count of troubles in the episode.
func (e *Episode) Count() int { return e.count }

// Lasted is how long the episode has taken: up to now, or until it was well.
func (e *Episode) Lasted(now time.Time) time.Duration {
	switch {
	case e.since.IsZero():
		return 0
	case e.well.IsZero():
		return now.Sub(e.since)
	}
	return e.well.Sub(e.since)
}
