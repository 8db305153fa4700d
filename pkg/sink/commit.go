package sink

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/walstream/walstream/pkg/checkpoint"
	"github.com/walstream/walstream/pkg/sink/schedule"
)

const (
	// aheadWeight is how much a lane may have that is not answered. What it has must
	// still be answered when the time of a transaction is up.
	aheadWeight = 8 << 20
	// commitTimeout outlasts the client's own attempts.
	commitTimeout = retryTimeout + requestTimeout
	// abortTimeout is less than a refusal waits to be reported.
	abortTimeout = 3 * time.Second
)

// kafkaTransaction is the schedule's.
type kafkaTransaction = schedule.Transaction[*row]

// commitAll is the committer: one Kafka transaction after the other, as the
// schedule says. The first failure is the last thing that happens; what it means
// is never guessed.
func (t *Transactional) commitAll() {
	defer close(t.ended)
	defer t.lookout.settle()
	for t.awaitReady() {
		tx := t.schedule.Begin(time.Now())
		lane := t.claim.lane[tx.Lane]
		err := t.transact(lane, tx)
		t.tell(tx, err)
		if err != nil {
			t.giveUp(lane, err)
			return
		}
	}
}

// awaitReady waits for the next transaction; false says that none follows.
func (t *Transactional) awaitReady() bool {
	for !t.stopping() {
		step, pause := t.schedule.Next(time.Now())
		switch {
		case step == schedule.Over:
			return false
		case step == schedule.Ready && pause <= 0:
			return true
		case step == schedule.Ready: // whatever comes, it does not begin earlier
			_ = sleep(t.records, pause)
			continue
		}
		timer := time.NewTimer(pause)
		select {
		case <-t.schedule.Wake():
		case <-timer.C:
		case <-t.records.Done():
		}
		timer.Stop()
	}
	return false
}

func (t *Transactional) stopping() bool { return t.records.Err() != nil }

// transact is one Kafka transaction: with rows, or with the position of idle time.
func (t *Transactional) transact(lane *lane, tx *kafkaTransaction) error {
	if t.claim.k.cfg.OnCommit != nil {
		t.span = &Commit{Lane: tx.Lane}
	}
	if err := lane.begin(t.records); err != nil {
		return err
	}
	if err := t.handOver(lane, tx); err != nil {
		return err
	}
	progress, err := tx.Answered(t.finish(lane, tx.Edge()), time.Now())
	if err != nil {
		return err
	}
	t.count(tx)
	if progress { // its rows' acknowledgements are in the mailbox
		t.box.PutDurable(tx.Edge())
	}
	return nil
}

// handOver gives the lane the rows, as they come.
func (t *Transactional) handOver(lane *lane, tx *kafkaTransaction) error {
	inTime := t.records
	if !t.keepWhole {
		var cancel context.CancelFunc
		inTime, cancel = context.WithDeadline(t.records, tx.Deadline)
		defer cancel()
	}
	for !t.stopping() {
		rows, step := tx.Take(time.Now())
		switch step {
		case schedule.Finish:
			return nil
		case schedule.Rows:
			for _, r := range rows {
				if t.awaitRoom(inTime, r); t.stopping() {
					break
				}
				t.produce(lane, r)
			}
		case schedule.Wait:
			select {
			case <-t.schedule.Wake():
			case <-inTime.Done():
			}
		default: // the rest never comes
			return errStopped
		}
	}
	return errStopped
}

// awaitRoom bounds what the lane has and has not answered.
func (t *Transactional) awaitRoom(inTime context.Context, r *row) {
	if r.room > 0 {
		t.awaitFit(r)
	}
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

// awaitFit waits for the room that a row needs, however long it takes: what goes
// together with others cannot be told from them.
func (t *Transactional) awaitFit(r *row) {
	t.careful.Store(true)
	defer t.careful.Store(false)
	for !r.fits(t.ahead.Load()) {
		select {
		case <-t.answered:
		case <-t.records.Done():
			return
		}
	}
}

func (t *Transactional) produce(lane *lane, r *row) {
	if t.tally != nil {
		t.tally.take(r)
	}
	if r.skip {
		t.box.Put(r.ticket)
		return
	}
	if t.span != nil {
		t.span.take(r)
	}
	lane.writes(r.record.Topic)
	t.ahead.Add(int64(r.weight))
	lane.client.Produce(t.records, &r.record, t.promise)
}

// finish adds the checkpoint, waits for every answer, and commits.
func (t *Transactional) finish(lane *lane, edge checkpoint.Edge) error {
	records, err := t.claim.checkpoint(t.base.With(edge))
	if err != nil {
		return err
	}
	t.answer = make(chan error, len(records))
	for _, record := range records {
		lane.writes(record.Topic)
		lane.client.Produce(t.records, record, func(_ *kgo.Record, err error) {
			if err != nil {
				t.cancel()
			}
			t.answer <- err
		})
	}
	if lane.client.Flush(t.records) != nil || t.stopping() {
		return errStopped
	}
	ctx, cancel := context.WithTimeout(t.tasks, commitTimeout)
	defer cancel()
	if err := lane.commit(ctx); err != nil {
		return err
	}
	t.claim.buckets.Add(uint64(len(records) - 1))
	return nil
}

// tell whoever traces.
func (t *Transactional) tell(tx *kafkaTransaction, err error) {
	span := t.span
	if span == nil || span.Rows == 0 {
		return
	}
	span.Ended, span.Err = time.Now(), err
	if err == nil {
		span.at(tx.Edge())
		span.Split = tx.Split()
	}
	t.claim.k.cfg.OnCommit(span)
}

// count a transaction that is committed.
func (t *Transactional) count(tx *kafkaTransaction) {
	t.commits[tx.Lane].Add(1)
	if tx.Idle {
		t.idle.Add(1)
	}
	if tx.Split() {
		t.splits.Add(1)
		edge := tx.Edge()
		t.claim.k.log.Warn().Stringer("commit_lsn", edge.CommitLSN).Uint32("xid", edge.XID).Uint32("rows_published", edge.Ordinal).
			Stringer("open_for", time.Since(tx.Began).Round(time.Millisecond)).
			Msg("split: a large transaction is published in parts, and readers see this one before the rest")
	}
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
	for range cap(t.answer) {
		select {
		case err := <-t.answer:
			if err != nil && !isEcho(err) {
				return fmt.Errorf("produce: %w", err)
			}
		default:
			return nil
		}
	}
	return nil
}
