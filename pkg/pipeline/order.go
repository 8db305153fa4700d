package pipeline

import (
	"context"

	"github.com/walstream/walstream/pkg/checkpoint"
	"github.com/walstream/walstream/pkg/sink/schedule"
)

// starter is what a start consists of. Between any two of its steps the instance
// may be paused or killed, and others may do anything.
type starter interface {
	// look reads slot and checkpoint, and disturbs nobody.
	look(ctx context.Context) error
	// take the slot. It is the lock.
	take(ctx context.Context) error
	// hold keeps it while rest runs, with statuses that confirm its own position.
	hold(ctx context.Context, rest func(ctx context.Context) error) error
	// claim a lane: who owned it is fenced, and what it left open ends.
	claim(ctx context.Context, lane int) error
	// load the newest checkpoint, once nothing is open on its topic.
	load(ctx context.Context) (record checkpoint.Record, found bool, err error)
	// compare it with slot and server.
	compare(record checkpoint.Record, found bool) (checkpoint.Decision, error)
	// write a checkpoint at edge.
	write(ctx context.Context, edge checkpoint.Edge) error
}

// start is the order of every start (design section 5). It returns from where to
// stream.
//
//  1. Look: stop on another server, before anybody is disturbed.
//  2. Take the slot: nobody writes to or fences in Kafka without it.
//  3. Claim the lanes.
//  4. Load the checkpoint again: this one counts.
//  5. Compare; only then are frames taken.
func start(ctx context.Context, s starter) (decision checkpoint.Decision, err error) {
	if err := s.look(ctx); err != nil { // 1
		return decision, err
	}
	if err := s.take(ctx); err != nil { // 2
		return decision, err
	}
	err = s.hold(ctx, func(ctx context.Context) (err error) {
		decision, err = decide(ctx, s)
		return err
	})
	return decision, err
}

// decide is steps 3 to 5.
func decide(ctx context.Context, s starter) (decision checkpoint.Decision, err error) {
	if err := claimLanes(ctx, s); err != nil { // 3
		return decision, err
	}
	record, found, err := s.load(ctx) // 4
	if err != nil {
		return decision, err
	}
	if decision, err = s.compare(record, found); err != nil { // 5
		return decision, err
	}
	if !found || record.Phase == checkpoint.PhaseSetup || decision.Accepted != "" || decision.Moved {
		// What the start counts on becomes durable before anything is confirmed.
		err = s.write(ctx, decision.Start)
	}
	return decision, err
}

// claimLanes is step 3: lane 0 first, on which the first transaction runs. Two
// instances that each own one lane would both commit.
func claimLanes(ctx context.Context, s starter) error {
	for lane := range schedule.Lanes {
		if err := s.claim(ctx, lane); err != nil {
			return err
		}
	}
	return nil
}
