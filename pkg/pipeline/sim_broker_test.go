package pipeline

import (
	"errors"
	"hash/fnv"

	"github.com/walstream/walstream/pkg/checkpoint"
)

// simBroker is a Kafka: partitions, two transactional ids, one checkpoint topic.
type simBroker struct {
	s           *sim
	log         [][]simRecord // by partition; the last one is that of dead letters
	checkpoints []simCheckpoint
	lanes       [2]simLane
	copies      map[int][]*simInstance // who published a row that a read_committed reader sees
	refuses     map[int]int            // times that a row is refused yet
	known       int                    // the server's transactions before this one are visible
}

// simRecord counts at once, or when the transaction that it is in is committed.
type simRecord struct {
	row simRow
	in  *simTransaction
}

type simCheckpoint struct {
	record checkpoint.Record
	in     *simTransaction
}

// simTransaction is one of Kafka.
type simTransaction struct {
	by        *simInstance
	rows      []simRow
	record    *checkpoint.Record
	committed bool
}

// simLane is one transactional id.
type simLane struct {
	epoch int
	by    *simInstance // who has raised the epoch; nil for the broker itself
	open  *simTransaction
}

var (
	errRefused = errors.New("record refused")
	errFenced  = errors.New("fenced")
	errUnknown = errors.New("the outcome of a transaction is unknown")
)

func (b *simBroker) partition(key string) int {
	h := fnv.New32a()
	_, _ = h.Write([]byte(key))
	return int(h.Sum32()) % (len(b.log) - 1)
}

// claim fences whoever held the lane before, and ends what it left open.
func (b *simBroker) claim(lane int, by *simInstance) (epoch int) {
	l := &b.lanes[lane]
	l.epoch, l.by, l.open = l.epoch+1, by, nil
	b.s.say("%s: claims lane %d", by, lane)
	return l.epoch
}

// timeOut is a transaction that was open for too long for the broker.
func (b *simBroker) timeOut(lane int) {
	if l := &b.lanes[lane]; l.open != nil {
		b.s.say("broker: the transaction of %s on lane %d timed out", l.open.by, lane)
		l.epoch, l.by, l.open = l.epoch+1, nil, nil
	}
}

// check refuses an old epoch. No instance that waits for the slot may have raised
// it; one that woke up may, and goes through the order of a start after that.
func (b *simBroker) check(lane, epoch int, who *simInstance) error {
	l := &b.lanes[lane]
	if l.epoch == epoch {
		return nil
	}
	if l.by != nil && l.by.sender == nil {
		b.s.fail("%s was fenced on lane %d by %s, which does not hold the slot and never did", who, lane, l.by)
	}
	b.s.Fenced++
	b.s.say("%s: fenced on lane %d", who, lane)
	return errFenced
}

// transaction that is open on a lane, for a record that comes in.
func (b *simBroker) transaction(lane, epoch int, by *simInstance) (*simTransaction, error) {
	if err := b.check(lane, epoch, by); err != nil {
		return nil, err
	}
	l := &b.lanes[lane]
	if l.open == nil {
		l.open = &simTransaction{by: by}
	}
	return l.open, nil
}

// append writes a row; in is nil outside of a transaction.
func (b *simBroker) append(p int, row simRow, by *simInstance, in *simTransaction) {
	b.checkPlace(p, row)
	b.log[p] = append(b.log[p], simRecord{row, in})
	if in == nil {
		b.appear(row, by)
		return
	}
	in.rows = append(in.rows, row)
}

// appendCheckpoint writes a checkpoint record, always in a transaction.
func (b *simBroker) appendCheckpoint(record checkpoint.Record, in *simTransaction) {
	in.record = &record
	b.checkpoints = append(b.checkpoints, simCheckpoint{record, in})
}

func (b *simBroker) abort(lane, epoch int) {
	if l := &b.lanes[lane]; l.epoch == epoch {
		l.open = nil
	}
}

// commit makes what is in the lane's transaction visible, all at once.
func (b *simBroker) commit(lane, epoch int, by *simInstance) error {
	if err := b.check(lane, epoch, by); err != nil {
		return err
	}
	l, before := &b.lanes[lane], b.newest()
	tx := l.open
	if tx == nil || tx.record == nil {
		b.s.fail("%s commits a transaction without a checkpoint on lane %d", by, lane)
	}
	l.open, tx.committed = nil, true
	b.s.KafkaCommits++
	b.s.say("broker: %s committed on lane %d: rows %v, checkpoint %s (commit %s #%d)",
		by, lane, tx.rows, tx.record.Covered, tx.record.CommitLSN, tx.record.Ordinal)
	for _, row := range tx.rows {
		b.appear(row, by)
	}
	if tx.record.Covered < before.Covered && !by.accepted && tx.record.Timeline == before.Timeline { // an idle position of a timeline that was left
		b.s.fail("checkpoint %s of %s is behind %s, a newer one", tx.record.Covered, by, before.Covered)
	}
	b.checkWhole(tx)
	b.checkCovered(tx)
	return nil
}

// write is a transaction of its own on lane 0, with nothing but a checkpoint.
func (b *simBroker) write(record checkpoint.Record, epoch int, by *simInstance) error {
	tx, err := b.transaction(0, epoch, by)
	if err != nil {
		return err
	}
	b.appendCheckpoint(record, tx)
	return b.commit(0, epoch, by)
}

// newest is the newest committed checkpoint.
func (b *simBroker) newest() checkpoint.Record {
	for n := len(b.checkpoints) - 1; n >= 0; n-- {
		if c := b.checkpoints[n]; c.in.committed {
			return c.record
		}
	}
	return checkpoint.Record{}
}

// unsettled: a transaction is open on the checkpoint topic.
func (b *simBroker) unsettled() bool {
	for _, l := range b.lanes {
		if l.open != nil && l.open.record != nil {
			return true
		}
	}
	return false
}

// visible, or left out by the policy.
func (b *simBroker) visible(row simRow) bool {
	return len(b.copies[row.number]) > 0 || b.s.poison.skipped[row.number]
}

// appear makes a row visible to a read_committed reader. Twice is lawful only
// where an instance that delivers at least once was ended or paused behind its
// checkpoint.
func (b *simBroker) appear(row simRow, by *simInstance) {
	for _, before := range b.copies[row.number] {
		switch {
		case before == by:
			b.s.fail("row %d published twice by %s", row.number, by)
		case before.clean && !by.paused && !by.gone:
			b.s.fail("row %d published by %s, which stopped cleanly, and again by %s", row.number, before, by)
		case before.exactly && by.exactly:
			b.s.fail("row %d published by %s and again by %s", row.number, before, by)
		case before.exactly && !by.paused && !by.gone && !before.paused:
			b.s.fail("row %d published by %s and again by %s, and neither was killed or paused", row.number, before, by)
		}
		b.s.Duplicates++
	}
	b.copies[row.number] = append(b.copies[row.number], by)
}

// checkWhole: a Kafka transaction shows whole transactions of PostgreSQL, unless
// its checkpoint says that it ends inside one.
func (b *simBroker) checkWhole(tx *simTransaction) {
	for _, row := range tx.rows {
		source := b.s.source[row.number]
		if source.old || tx.by.pages != nil {
			continue // pages are not its transactions
		}
		for _, other := range source.rows {
			if b.visible(other) {
				continue
			}
			if tx.record.Ordinal == 0 || tx.record.CommitLSN != source.commit {
				b.s.fail("transaction %s is torn: row %d is visible, row %d is not", source.commit, row.number, other.number)
			}
			break
		}
	}
	if len(tx.rows) > 0 && tx.record.Ordinal != 0 {
		b.s.Splits++
		if !tx.by.exactly {
			b.s.fail("%s splits a transaction", tx.by)
		}
	}
}

// checkCovered: what a checkpoint covers is visible. An instance that streamed
// from another history tells nothing about this one.
func (b *simBroker) checkCovered(tx *simTransaction) {
	v := b.s.server
	if tx.record.Snapshot != nil { // where the stream will begin, no more
		return
	}
	if tx.by.sender == nil || tx.by.sender.history != v.history {
		return
	}
	for b.known < len(v.txs) && v.txs[b.known].commit < tx.record.Covered {
		for _, row := range v.txs[b.known].rows {
			if !b.visible(row) && !v.txs[b.known].given && !v.txs[b.known].old && !v.txs[b.known].doubt {
				b.s.fail("checkpoint %s of %s covers row %d of transaction %s, which is lost", tx.record.Covered, tx.by, row.number, v.txs[b.known].commit)
			}
		}
		b.known++
	}
}
