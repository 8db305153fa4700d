package pipeline

import (
	"context"
	"time"

	"github.com/walstream/walstream/pkg/replication"
)

const (
	// watchInterval is how often the slot is read while nothing is streamed.
	watchInterval = 2 * time.Second
	// watchAfter: a start that is over sooner opens no third connection.
	watchAfter = 3 * time.Second
	// watchTimeout bounds opening the session.
	watchTimeout = 5 * time.Second
)

// watchSlot reads the slot while nothing is streamed, on a session of its own: WAL
// piles up just then, and the session of a start has other work, or is not there.
func (s *Supervisor) watchSlot(ctx context.Context) {
	var session *replication.Session
	done := func() {
		if session != nil {
			session.Close()
			session = nil
		}
	}
	defer func() { done() }()
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(watchInterval):
		}
		if p := s.Progress(); p.DownSince.IsZero() || time.Since(p.DownSince) < watchAfter {
			done()
			continue
		}
		var err error
		if session == nil {
			opening, cancel := context.WithTimeout(ctx, watchTimeout)
			session, err = replication.OpenSession(opening, s.cfg.Postgres)
			cancel()
		}
		h := replication.Health{At: time.Now()}
		if err == nil {
			h, err = session.ReadSlot(ctx, s.cfg.Slot)
		}
		if h.Err = err; err != nil {
			done()
		}
		s.board.update(func(p *Progress) { p.Slot = h })
	}
}
