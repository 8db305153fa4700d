package pipeline

import "time"

// clockWindow is how long an estimate of the server's clock counts.
const clockWindow = time.Minute

// serverClock estimates the server's time from the stamps the stream carries.
// Lag in seconds compares the server's stamps with the server's clock: ours may
// differ by more than the lag. A frame may have waited on its way, so the
// smallest difference of a window is the truest.
type serverClock struct {
	current, previous time.Duration // smallest (ours - server's) of this window and the last
	started           time.Time     // of the current window; zero before the first stamp
}

// observe takes a stamp of the server and the moment it was read.
func (c *serverClock) observe(server, now time.Time) {
	offset := now.Sub(server)
	switch {
	case c.started.IsZero():
		c.current, c.previous, c.started = offset, offset, now
	case now.Sub(c.started) > clockWindow:
		c.current, c.previous, c.started = offset, c.current, now
	case offset < c.current:
		c.current = offset
	}
}

// since is the time from a stamp of the server to now, by the server's clock.
func (c *serverClock) since(stamp, now time.Time) time.Duration {
	return max(0, now.Sub(stamp)-min(c.current, c.previous))
}
