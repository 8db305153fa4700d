package prune

import (
	"context"
	"errors"
	"fmt"

	"github.com/walstream/walstream/pkg/outbox"
	"github.com/walstream/walstream/pkg/replication"
)

// Check says whether all that is asked for can be done. It changes nothing.
func Check(ctx context.Context, cfg Config) replication.Finding {
	f := replication.Finding{Name: "retention", Status: replication.StatusOK}
	found, err := check(ctx, cfg)
	if err == nil {
		f.Detail = fmt.Sprintf("the role may do it; tables: %v", found)
		for _, t := range found {
			if cfg.Delete && !t.indexed && !(cfg.DropPartitions && t.partitioned) {
				concurrently := " CONCURRENTLY"
				if t.partitioned { // which the server cannot
					concurrently = ""
				}
				f.Status = replication.StatusWarn
				f.Detail = fmt.Sprintf("no index of table %s begins with column %s, so every pass reads the whole table", t, t.age)
				f.Remedy = fmt.Sprintf("CREATE INDEX%s ON %s (%s);", concurrently, t.quoted(), quote(t.age))
			}
		}
		return f
	}
	f.Status, f.Detail, f.Err = replication.StatusFail, err.Error(), err
	var right *replication.RightError
	var setup *SetupError
	switch {
	case errors.As(err, &right):
		f.Detail, f.Remedy = "the role lacks "+right.What, right.SQL
	case errors.As(err, &setup):
		f.Detail, f.Remedy = setup.Found, setup.Remedy
	default:
		f.Remedy = "see that the server answers, then check again"
	}
	return f
}

func check(ctx context.Context, cfg Config) ([]*table, error) {
	mapping, err := outbox.NewMapping(cfg.Mapping)
	if err != nil {
		return nil, err
	}
	session, err := replication.OpenSession(ctx, cfg.Postgres)
	if err != nil {
		return nil, err
	}
	defer session.Close()
	return cfg.lookUpAll(ctx, session.Conn(), mapping)
}
