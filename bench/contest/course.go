package main

import "time"

// course is how a drain went: when its first row came, and what the last third of
// them took, when a virtual machine has compiled what it runs and the start no
// longer weighs.
type course struct {
	rows int64
	pid  int
	from time.Time

	first           time.Duration
	begun, ended    time.Time // of the last third
	begunAt         int64     // rows
	cpuThen, cpuNow time.Duration
}

func newCourse(rows, pid int, from time.Time) *course {
	return &course{rows: int64(rows), pid: pid, from: from}
}

// note takes how many rows have arrived.
func (c *course) note(arrived int64) {
	if arrived <= 0 || !c.ended.IsZero() {
		return
	}
	now := time.Now()
	if c.first == 0 {
		c.first = now.Sub(c.from)
	}
	if c.begun.IsZero() && arrived >= c.rows-c.rows/3 {
		c.begun, c.begunAt = now, arrived
		c.cpuThen, _ = cpuTime(c.pid) // 0 where there is no /proc
	}
	if arrived >= c.rows {
		c.ended = now
		c.cpuNow, _ = cpuTime(c.pid)
	}
}

// fill writes the last third into a sample; one that came at once says nothing.
func (c *course) fill(s *sample) {
	s.First = c.first.Seconds()
	third := float64(c.rows - c.begunAt)
	if took := c.ended.Sub(c.begun).Seconds(); took > 0 && third > 0 {
		s.WarmRate = third / took
		s.WarmCPU = (c.cpuNow - c.cpuThen).Seconds() / (third / 1e6)
	}
}
