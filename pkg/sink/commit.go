package sink

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/walstream/walstream/pkg/checkpoint"
)

const (
	// openWeight of a PostgreSQL transaction that is not complete opens a Kafka
	// transaction; a smaller one waits for its end, and hides nothing meanwhile.
	openWeight = 8 << 20
	// chunkWeight and chunkRows are taken from the backlog at a time.
	chunkWeight = 1 << 20
	chunkRows   = 256
	// aheadWeight is how much a lane may have that is not answered. What it has must
	// still be answered when the time of a transaction is up.
	aheadWeight = 8 << 20
	// commitTimeout outlasts the client's own attempts.
	commitTimeout = retryTimeout + requestTimeout
	// abortTimeout is less than a refusal waits to be reported.
	abortTimeout = 3 * time.Second
)

// committing is what belongs to the committer's goroutine.
type committing struct {
	open  amount // of an incomplete transaction, opens a Kafka transaction
	chunk amount // of it, goes into the open one
	buf   []entry

	turn    int           // the lane to use next
	beganAt time.Time     // of the last transaction
	endedAt time.Time     // likewise
	loaded  bool          // more was waiting when it ended
	answer  chan error    // to the last checkpoint record
	covered pglogrepl.LSN // by the checkpoints written
	torn    bool          // the last one lies inside a PostgreSQL transaction
}

// newCommitting: a full window must always be enough to go on with, or nothing
// ever would.
func newCommitting(window checkpoint.Limits) committing {
	return committing{
		open:  amount{rows: max(window.Events/4, 1), weight: max(min(window.Bytes/4, openWeight), 1)},
		chunk: amount{rows: max(min(window.Events/4, chunkRows/4), 1), weight: max(min(window.Bytes/4, chunkWeight/16), 1)},
		buf:   make([]entry, 0, chunkRows),
	}
}

// commitAll is the committer: one Kafka transaction after the other, each begun
// when the one before was answered with success. The first failure is the last
// thing that happens; what it means is never guessed.
func (t *Transactional) commitAll() {
	defer close(t.ended)
	defer t.lookout.settle()
	for {
		var edge checkpoint.Edge
		switch t.awaitWork() {
		case workRows:
		case workIdle:
			if edge = t.backlog.takeIdle(); edge.Covered <= t.covered {
				continue
			}
			if t.torn {
				panic(fmt.Sprintf("walstream: bug: idle position %s inside a split transaction", edge.Covered))
			}
		default:
			return
		}
		lane := t.claim.lane[t.turn]
		if err := t.transact(lane, edge); err != nil {
			t.giveUp(lane, err)
			return
		}
		t.turn = (t.turn + 1) % lanes
	}
}

// awaitWork returns what to do next, at its time: after idleness at once, under
// load in the rhythm of the commit interval, idle positions now and then.
func (t *Transactional) awaitWork() work {
	for !t.stopping() {
		var pause time.Duration
		switch what := t.backlog.next(t.open); what {
		case workRows:
			if t.loaded && sleep(t.records, t.options.CommitInterval-time.Since(t.beganAt)) != nil {
				return workOver
			}
			return what
		case workIdle:
			if pause = checkpointPause - time.Since(t.endedAt); pause <= 0 {
				return what
			}
		case workOver:
			return what
		case workNone:
			pause = time.Hour
		}
		timer := time.NewTimer(pause)
		select {
		case <-t.backlog.wake:
		case <-timer.C:
		case <-t.records.Done():
		}
		timer.Stop()
	}
	return workOver
}

func (t *Transactional) stopping() bool { return t.records.Err() != nil }

// transact is one Kafka transaction: with rows, or with the position of idle time.
func (t *Transactional) transact(lane *lane, edge checkpoint.Edge) error {
	t.beganAt = time.Now()
	if err := lane.begin(t.records); err != nil {
		return err
	}
	isIdle := edge.Covered != 0
	if !isIdle {
		var err error
		if edge, err = t.handOver(lane); err != nil {
			return err
		}
	}
	if err := t.finish(lane, edge); err != nil {
		return err
	}
	t.endedAt = time.Now()
	t.commits[lane.n].Add(1)
	if isIdle { // its ordinal, if any, is of a transaction split before the start
		t.idle.Add(1)
	} else {
		t.torn = edge.Ordinal != 0
	}
	if t.torn {
		t.splits.Add(1)
		t.claim.k.log.Warn().Stringer("commit_lsn", edge.CommitLSN).Uint32("xid", edge.XID).Uint32("rows_published", edge.Ordinal).
			Stringer("open_for", t.endedAt.Sub(t.beganAt).Round(time.Millisecond)).
			Msg("a large transaction is published in parts: readers see this part before the rest")
	}
	if edge.Covered > t.covered { // its rows' acknowledgements are in the mailbox
		t.covered = edge.Covered
		t.box.PutDurable(edge)
	}
	t.loaded = t.backlog.next(t.open) == workRows
	return nil
}

// handOver gives the lane what waits: the transactions that are complete by now,
// up to CommitMaxBytes; or, of one that is not, the rows as they arrive. It
// returns where in the stream it has come to.
func (t *Transactional) handOver(lane *lane) (checkpoint.Edge, error) {
	inTime, cancel := context.WithTimeout(t.records, t.options.MaxTransactionTime)
	defer cancel()
	var edge *checkpoint.Edge // of the last transaction that is complete
	var last *row             // of one that is not
	for whole := max(t.backlog.fitting(t.options.CommitMaxBytes), 1); whole > 0; {
		entries, over := t.backlog.take(t.buf, t.chunk)
		for _, e := range entries {
			if e.end != nil {
				edge, last = e.end, nil
				whole--
				continue
			}
			if t.awaitRoom(inTime); t.stopping() {
				break
			}
			last = e.row
			t.produce(lane, last)
		}
		clear(entries)
		if over || t.stopping() {
			return checkpoint.Edge{}, errStopped
		}
		if inTime.Err() != nil && (last == nil && edge != nil || last != nil && !t.nearEnd()) {
			break
		}
		if len(entries) == 0 {
			select {
			case <-t.backlog.wake:
			case <-inTime.Done():
			}
		}
	}
	if last == nil {
		return *edge, nil
	}
	split := *last.begun
	split.Ordinal = last.position.Ordinal
	return split, nil
}

// nearEnd: so little is left of the transaction at hand that it is not worth
// splitting.
func (t *Transactional) nearEnd() bool {
	left, known := t.backlog.remaining()
	return known && left <= chunkWeight
}

// awaitRoom bounds what the lane has and has not answered.
func (t *Transactional) awaitRoom(inTime context.Context) {
	if t.ahead.Load() < aheadWeight {
		return
	}
	for t.ahead.Load() > aheadWeight/2 {
		select {
		case <-t.answered:
		case <-inTime.Done():
			return
		}
	}
}

func (t *Transactional) produce(lane *lane, r *row) {
	lane.writes(r.record.Topic)
	t.ahead.Add(int64(r.weight))
	lane.client.Produce(t.records, &r.record, t.promise)
}

// finish adds the checkpoint, waits for every answer, and commits.
func (t *Transactional) finish(lane *lane, edge checkpoint.Edge) error {
	record, err := t.claim.checkpoint(t.base.With(edge))
	if err != nil {
		return err
	}
	lane.writes(record.Topic)
	t.answer = make(chan error, 1)
	lane.client.Produce(t.records, record, func(_ *kgo.Record, err error) {
		if err != nil {
			t.cancel()
		}
		t.answer <- err
	})
	if lane.client.Flush(t.records) != nil || t.stopping() {
		return errStopped
	}
	ctx, cancel := context.WithTimeout(t.tasks, commitTimeout)
	defer cancel()
	return lane.commit(ctx)
}

// giveUp ends the sink: nothing more is produced, the open transaction is aborted
// if a broker listens, and the error is reported once.
func (t *Transactional) giveUp(lane *lane, err error) {
	t.cancel()
	ctx, cancel := context.WithTimeout(t.tasks, abortTimeout)
	defer cancel()
	if abortErr := lane.abort(ctx); abortErr != nil {
		t.claim.k.log.Debug().Err(abortErr).Msg("the open transaction was not aborted; the next start ends it")
	}
	// With the abort, everything produced has been answered. What ends the producer
	// fails rows and checkpoint alike; the row's is explained elsewhere.
	if errors.Is(err, errStopped) {
		if t.lookout.explaining() {
			return
		}
		err = t.refusedCheckpoint()
	}
	const doing = "commit a transaction"
	if err == nil {
		err = errNoReason
	}
	t.box.PutErr(t.claim.k.transactionError(doing, err))
}

// refusedCheckpoint returns what the checkpoint's own record was refused with, if
// it was.
func (t *Transactional) refusedCheckpoint() error {
	select {
	case err := <-t.answer:
		if err != nil && !isEcho(err) {
			return fmt.Errorf("produce: %w", err)
		}
	default:
	}
	return nil
}
