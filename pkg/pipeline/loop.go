package pipeline

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/rs/zerolog"

	"github.com/walstream/walstream/pkg/decode"
	"github.com/walstream/walstream/pkg/replication"
)

// tick is how often time is looked at: the finest grain of statuses, probes and
// published progress.
const tick = 100 * time.Millisecond

// ErrUnacknowledged: the grace for stopping ran out with records that Kafka had
// not answered. Nothing is lost: they are unconfirmed and come again.
var ErrUnacknowledged = errors.New("stopped with records unacknowledged")

// ErrRowsChanged: what decides which rows the stream carries was changed under
// it. Whether rows were left out cannot be told from the stream.
var ErrRowsChanged = errors.New("the publication, or a table behind it, was changed")

// Stream is a replication connection that streams.
type Stream interface {
	Source
	// Batches delivers what was read; closed at the end, and Err says why.
	Batches() <-chan *decode.Batch
	Release(b *decode.Batch)
	Err() error
	// HeardAt is when bytes last came in.
	HeardAt() time.Time
	// Finish ends the stream in order, so that the last status is known to be
	// read.
	Finish(ctx context.Context) error
}

// health is what the ordinary session tells the loop; err ends the run.
type health struct {
	replication.Health
	err error
}

// loop joins the parts of one run. It is the one goroutine that owns the core,
// the pacer and the socket's write half, and it never waits for the broker.
type loop struct {
	stream  Stream
	pacer   *Pacer
	health  <-chan health
	last    replication.Health // the newest reading
	rows    string             // fingerprint of what the stream carries, as it was at the start
	ticker  *time.Ticker
	log     zerolog.Logger
	publish func(core *Core, last replication.Health, now time.Time) // progress, for others to read
	// draining is told when the stop begins.
	draining func()
	blind    bool // silence was noticed and is named
}

// hold keeps the slot while Kafka is being asked what to start from: statuses go
// out that confirm the slot's own position only, and no frame is taken.
func (l *loop) hold(ctx context.Context, slotConfirmed pglogrepl.LSN, claimed <-chan struct{}) error {
	for {
		select {
		case <-claimed:
			return nil
		case now := <-l.ticker.C:
			if !l.pacer.StatusDue(now) {
				continue
			}
			l.pacer.Sent(slotConfirmed, slotConfirmed, now)
			if err := l.stream.SendStatus(slotConfirmed, slotConfirmed, false); err != nil {
				return fmt.Errorf("send status update: %w", err)
			}
		case h := <-l.health:
			if err := l.onHealth(h); err != nil {
				return err
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// run streams until ctx ends (the stream is then drained within grace and ended
// in order) or an error.
func (l *loop) run(ctx context.Context, core *Core, grace time.Duration) error {
	var batch *decode.Batch
	for {
		var frames <-chan *decode.Batch
		if batch == nil && !core.Full() {
			frames = l.stream.Batches()
		}
		select {
		case b, ok := <-frames:
			if !ok {
				return l.ended()
			}
			batch = b
		case <-core.sink.Ready():
			if err := core.OnAcks(time.Now()); err != nil {
				return err
			}
		case now := <-l.ticker.C:
			if err := l.onTick(core, now); err != nil {
				return err
			}
		case h := <-l.health:
			if err := l.onHealth(h); err != nil {
				return err
			}
		case <-ctx.Done():
			l.draining()
			return l.drain(core, grace)
		}
		if batch != nil {
			done, err := l.take(core, batch)
			if err != nil {
				return err
			}
			if done {
				l.stream.Release(batch)
				batch = nil
			}
		}
	}
}

// take hands the frames of a batch to the core until the window is full.
func (l *loop) take(core *Core, batch *decode.Batch) (done bool, err error) {
	now := time.Now()
	for !core.Full() {
		payload, ok := batch.Next()
		if !ok {
			return true, nil
		}
		if err := core.OnFrame(payload, now); err != nil {
			return false, err
		}
	}
	return false, nil
}

func (l *loop) ended() error {
	if err := l.stream.Err(); err != nil {
		return err
	}
	return replication.ErrStreamEnded
}

func (l *loop) onTick(core *Core, now time.Time) error {
	if core.Full() {
		l.pacer.Heard(now) // we are the ones not reading
	} else if heard := l.stream.HeardAt(); heard.After(l.pacer.heardAt) {
		l.pacer.Heard(heard)
	}
	if err := l.checkSilence(now); err != nil {
		return err
	}
	l.publish(core, l.last, now)
	return core.OnTick(now)
}

// checkSilence asks the ordinary session about a server that says nothing. A
// walsender busy with a large transaction may be silent for long; one that is
// gone, or that nobody can tell of, is given up.
func (l *loop) checkSilence(now time.Time) error {
	if !l.pacer.Silent(now) {
		l.blind = false
		return nil
	}
	silence := l.pacer.Silence(now).Round(time.Second)
	asked := l.last.At.After(l.pacer.heardAt) && now.Sub(l.last.At) < l.pacer.silence
	if asked && l.last.Err == nil && l.last.WalsenderActive {
		if !l.blind {
			l.blind = true
			l.log.Warn().Stringer("silence", silence).Msg("the server sends nothing, but its walsender is alive: it is busy, or waits for something")
		}
		return nil
	}
	if asked && l.last.Err == nil {
		return fmt.Errorf("%w for %s, and its walsender no longer holds the slot", replication.ErrSilent, silence)
	}
	return fmt.Errorf("%w for %s, and the ordinary session cannot tell whether its walsender lives", replication.ErrSilent, silence)
}

func (l *loop) onHealth(h health) error {
	if h.err != nil {
		return h.err
	}
	before := l.last
	l.last = h.Health
	if h.Err != nil {
		return nil // checkSilence decides
	}
	if h.Rows != l.rows {
		return fmt.Errorf("%w, between LSN %s and %s: rows committed then may not be in the stream; "+
			"put it in order, compare the table with the topics; the next start names the flag that goes on", ErrRowsChanged, before.WALEnd, h.WALEnd)
	}
	if h.SyncState != "" && h.SyncState != "async" {
		return fmt.Errorf("%w (sync_state %q, synchronous_standby_names %q): every COMMIT of the application would wait for Kafka; "+
			"name the real standbys in that setting instead of '*', or leave walstream's application_name out of it",
			replication.ErrSynchronousStandby, h.SyncState, h.SyncNames)
	}
	if h.WALStatus == "lost" {
		return fmt.Errorf("%w: wal_status is lost, last confirmed %s", replication.ErrSlotLost, h.Confirmed)
	}
	return nil
}

// drain takes no more frames, waits for what is in flight and for the last
// checkpoint, confirms it, and ends the stream. What it leaves unacknowledged is
// unconfirmed and comes again.
func (l *loop) drain(core *Core, grace time.Duration) error {
	if err := l.settle(core, grace); err != nil {
		events, bytes := core.ledger.InFlight()
		return fmt.Errorf("%w (%d rows, %d bytes; they are unconfirmed and are sent again at the next start): %w",
			ErrUnacknowledged, events, bytes, err)
	}
	if err := core.FinalStatus(time.Now()); err != nil {
		return ignoreEnd(l.log, err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), finishTimeout)
	defer cancel()
	return ignoreEnd(l.log, l.stream.Finish(ctx))
}

// ignoreEnd: with everything published and its checkpoint durable, a connection
// that ends badly costs nothing; the next start confirms.
func ignoreEnd(log zerolog.Logger, err error) error {
	if err != nil {
		log.Debug().Err(err).Msg("the last status may not have been read")
	}
	return nil
}

// settle waits until everything taken in is covered by a durable checkpoint.
func (l *loop) settle(core *Core, grace time.Duration) error {
	deadline := time.NewTimer(grace)
	defer deadline.Stop()
	core.OnStop()
	for !core.Drained() {
		select {
		case <-core.sink.Ready():
			if err := core.OnAcks(time.Now()); err != nil {
				return err
			}
			core.OnStop()
		case now := <-l.ticker.C:
			l.publish(core, l.last, now)
			if err := core.OnTick(now); err != nil {
				return err
			}
		case h := <-l.health:
			if h.err != nil {
				return h.err // the server stops too: do not hold it up
			}
		case <-deadline.C:
			return fmt.Errorf("the grace of %s ran out", grace)
		}
	}
	return nil
}

// finishTimeout bounds the wait for the server's answer to the end of the
// stream: a walsender inside a large transaction does not look up before its end.
const finishTimeout = 3 * time.Second
