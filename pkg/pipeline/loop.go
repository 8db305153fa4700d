package pipeline

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/rs/zerolog"

	"github.com/walstream/walstream/pkg/decode"
	"github.com/walstream/walstream/pkg/repeat"
	"github.com/walstream/walstream/pkg/replication"
)

// tick is how often time is looked at: the finest grain of statuses, probes and
// published progress.
const tick = 100 * time.Millisecond

// ErrUnacknowledged: the grace for stopping ran out with records that Kafka had
// not answered. Nothing is lost: they are unconfirmed and come again.
var ErrUnacknowledged = errors.New("stopped with records unacknowledged")

var errGrace = errors.New("the grace ran out")

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
	// Lapsed is an error when the slot may be another instance's by now.
	Lapsed() error
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
	standby bool               // the server is one, and may be promoted
	last    replication.Health // the newest reading
	rows    string             // fingerprint of what the stream carries, as it was at the start
	ticker  *time.Ticker
	log     zerolog.Logger
	publish func(core *Core, last replication.Health, now time.Time) // progress, for others to read
	// draining is told when the stop begins.
	draining func()
	blind    bool           // silence was noticed and is named
	unread   repeat.Episode // readings of the slot that failed, for the log
	// waitsFor is why rows are not acknowledged, where that is known; it may be nil.
	waitsFor func() string
	// held tells that no frame may be taken for the moment; nil: it never does.
	held func() bool
	// unanswered is told, now and then, that the start waits for Kafka.
	unanswered func(since time.Duration)
}

// quietHold is what a start may take of Kafka's time before it says so.
const quietHold = 5 * time.Second

// hold keeps the slot while Kafka is being asked what to start from: statuses go
// out that confirm the slot's own position only, and no frame is taken.
func (l *loop) hold(ctx context.Context, slotConfirmed pglogrepl.LSN, claimed <-chan struct{}) error {
	began, waits := time.Now(), repeat.Episode{}
	for {
		select {
		case <-claimed:
			return nil
		case now := <-l.ticker.C:
			if err := l.stream.Lapsed(); err != nil {
				return err
			}
			if waited := now.Sub(began); waited > quietHold && waits.Trouble("", now) {
				l.unanswered(waited.Round(time.Second))
			}
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
				return l.blocked(core, grace, l.ended())
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
			return l.drain(core, batch, grace)
		}
		if batch != nil {
			done, err := l.take(core, batch)
			if err != nil {
				return l.blocked(core, grace, err)
			}
			if core.Reached() {
				return l.arrive(core, grace)
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
	for !core.Full() && !core.Reached() && (l.held == nil || !l.held()) {
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
	if err := l.stream.Lapsed(); err != nil {
		return err
	}
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
	if l.tellUnread(h.Health); h.Err != nil {
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
	if l.standby && h.Err == nil && !h.InRecovery {
		return fmt.Errorf("%w: what it sends from now on is of its own timeline, which a new start asks for", replication.ErrPromoted)
	}
	if h.WALStatus == "lost" { // the next start says how much went with it, and the way out
		return fmt.Errorf("%w: the slot is lost, last confirmed %s", replication.ErrStreamEnded, h.Confirmed)
	}
	return nil
}

// tellUnread says when the slot cannot be read, and when it can again: lag is
// unknown meanwhile.
func (l *loop) tellUnread(h replication.Health) {
	switch {
	case h.Err != nil:
		if l.unread.Trouble("", h.At) {
			l.log.Warn().Err(h.Err).Stringer("for", l.unread.Lasted(h.At).Round(time.Second)).
				Msg("cannot read the slot over the ordinary session: lag is unknown, the stream goes on")
		}
	case l.unread.Well(h.At), l.unread.Over(h.At):
		l.log.Info().Stringer("after", l.unread.Lasted(h.At).Round(time.Second)).Int("failures", l.unread.Count()).
			Msg("the slot can be read again")
	}
}

// drain takes no more transactions, waits for what is in flight and for the last
// checkpoint, confirms it, and ends the stream. What it leaves unacknowledged is
// unconfirmed and comes again.
func (l *loop) drain(core *Core, batch *decode.Batch, grace time.Duration) error {
	began := time.Now()
	err := l.complete(core, batch, grace/2)
	if err == nil {
		err = l.settle(core, grace-time.Since(began))
	}
	if err != nil {
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

// complete takes in the rest of a transaction that is published in part: its
// first rows would come again. Where that takes longer than the limit they do.
func (l *loop) complete(core *Core, batch *decode.Batch, limit time.Duration) error {
	deadline := time.NewTimer(limit)
	defer deadline.Stop()
	for core.Partial() {
		if batch != nil && !core.Full() {
			payload, ok := batch.Next()
			if !ok {
				l.stream.Release(batch)
				batch = nil
			} else if core.OnFrame(payload, time.Now()) != nil {
				return nil // the next start meets it again, and says so
			}
			continue
		}
		var frames <-chan *decode.Batch
		if batch == nil {
			frames = l.stream.Batches()
		}
		select {
		case b, ok := <-frames:
			if !ok {
				return nil
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
			if h.err != nil {
				return h.err // the server stops too: do not hold it up
			}
		case <-deadline.C:
			return nil
		}
	}
	return nil
}

// blocked: what lies before a row that cannot be sent or become an event is published and
// covered first. The next start begins with that row, so settings that read it
// need not read what was written before it, by another layout maybe.
func (l *loop) blocked(core *Core, grace time.Duration, err error) error {
	_, ours := errors.AsType[*BlockedError](err)
	if !ours && !errors.Is(err, replication.ErrEncoding) {
		return err
	}
	switch settled := l.settle(core, grace); {
	case settled == nil:
		if status := core.FinalStatus(time.Now()); status != nil {
			l.log.Debug().Err(status).Msg("the last status may not have been read")
		}
	case ours && Classify(settled).Action != Stop: // the row is met again when that is over
		return settled
	}
	return err
}

// arrive ends the stream behind the transaction that was its aim. Unlike at a stop
// an error is told as it is: it may pass at the next start.
func (l *loop) arrive(core *Core, grace time.Duration) error {
	l.draining()
	switch err := l.settle(core, grace); {
	case errors.Is(err, errGrace):
		return fmt.Errorf("%w: %w", ErrUnacknowledged, err)
	case err != nil:
		return err
	}
	if err := core.FinalStatus(time.Now()); err != nil {
		return err
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
			return l.graceOver(grace)
		}
	}
	return nil
}

// graceOver names what the rows still wait for, where it is known.
func (l *loop) graceOver(grace time.Duration) error {
	err := fmt.Errorf("%w (%s)", errGrace, grace.Round(time.Millisecond))
	if l.waitsFor == nil {
		return err
	}
	if why := l.waitsFor(); why != "" {
		return fmt.Errorf("%w: %s", err, why)
	}
	return err
}

// finishTimeout bounds the wait for the server's answer to the end of the
// stream: a walsender inside a large transaction does not look up before its end.
const finishTimeout = 3 * time.Second
