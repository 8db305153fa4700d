package replication

import (
	"fmt"
	"time"
)

// Lapsed returns an error when the server has been told nothing for
// wal_sender_timeout: it may have given the slot to another instance by now. It is
// nil before Start. Statuses go out thrice within that time, so this process was
// paused, or hardly ran. May be called by any goroutine.
func (c *Conn) Lapsed() error {
	told := c.toldAt.Load()
	if told == 0 || c.timeout == 0 {
		return nil
	}
	if silent := time.Since(c.born) - time.Duration(told); silent > c.timeout {
		return fmt.Errorf("%w: nothing sent for %s, wal_sender_timeout is %s", ErrLapsed, silent.Round(time.Millisecond), c.timeout)
	}
	return nil
}

// sinceBorn is never 0: a time that a pause of the process does not stop.
func (c *Conn) sinceBorn() int64 { return int64(time.Since(c.born)) + 1 }
