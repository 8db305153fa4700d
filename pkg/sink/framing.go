package sink

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kbin"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/walstream/walstream/pkg/outbox"
	"github.com/walstream/walstream/pkg/repeat"
	"github.com/walstream/walstream/pkg/sink/registry"
)

// framing is how values get the prefix of their schema: the loop holds rows back
// until it is known, a goroutine asks the registry, as the lookout asks for
// topics. It is one of its own: a registry that is down must not hold up rows
// that need none.
type framing struct {
	k       *Kafka
	box     *Mailbox
	known   map[schemaKey]*framer // the loop's
	wake    chan struct{}         // one slot
	recheck time.Duration

	mu       sync.Mutex
	asked    []*framer
	answered []framerAnswer
}

// schemaKey is what a row means. The settings of a table are one value for the
// life of a sink.
type schemaKey struct {
	schema *outbox.Schema
	at     outbox.SchemaAt
}

// framer as the loop sees it. What is in it but key is the loop's.
type framer struct {
	key    schemaKey
	framer *registry.Framer
	err    error     // why no row may be framed by it
	asOf   time.Time // of err
}

type framerAnswer struct {
	to     *framer
	framer *registry.Framer
	err    error
}

func newFraming(k *Kafka, box *Mailbox) *framing {
	return &framing{k: k, box: box, known: map[schemaKey]*framer{}, wake: make(chan struct{}, 1), recheck: recheckTime}
}

// of returns the framer of an event; nil when its value goes as it is.
func (f *framing) of(e *outbox.Event) *framer {
	if e.Schema == nil {
		return nil
	}
	key := schemaKey{e.Schema, e.SchemaAt}
	found := f.known[key]
	switch {
	case found == nil:
		found = &framer{key: key}
		f.known[key] = found
		if f.k.cfg.Registry == nil {
			found.err, found.asOf = errNoRegistry, time.Now()
			return found
		}
	case found.err == nil || time.Since(found.asOf) < f.recheck:
		return found
	}
	found.err = nil // somebody may have registered it meanwhile
	f.ask(found)
	return found
}

// errNoRegistry: whoever embeds the packages gave none.
var errNoRegistry = errors.New("its value needs a schema, and there is no schema registry (registry-url)")

func (f *framing) ask(wanted *framer) {
	f.mu.Lock()
	f.asked = append(f.asked, wanted)
	f.mu.Unlock()
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

// ready: rows need not wait for it.
func (f *framer) ready() bool { return f == nil || f.framer != nil || f.err != nil }

// learn takes what has been found since the last call.
func (f *framing) learn() (news bool) {
	f.mu.Lock()
	answers := f.answered
	f.answered = nil
	f.mu.Unlock()
	for _, a := range answers {
		a.to.framer, a.to.err, a.to.asOf = a.framer, a.err, time.Now()
	}
	return len(answers) > 0
}

// frame puts the prefix before the value of a row whose framer is ready.
func (f *front) frame(r *row) error {
	framer := r.framer
	if framer == nil {
		return nil
	}
	switch {
	case errors.Is(framer.err, errNoRegistry): // not the row's fault
		return framer.err
	case framer.err != nil:
		return &flaw{class: ClassSchema, err: framer.err}
	}
	if err := framer.framer.Check(r.record.Value); err != nil {
		return &flaw{class: ClassSchema, err: fmt.Errorf("%w (%s)", err, registry.Name(framer.key.at))}
	}
	r.record.Value = f.arena.join(framer.framer.Prefix(), r.record.Value)
	r.size, r.framer = sizeOf(&r.record), nil
	return nil
}

// sizeOf is recordSize of a record.
func sizeOf(r *kgo.Record) int {
	n := 1 + 1 + 1 + field(len(r.Key)) + field(len(r.Value)) + kbin.VarintLen(int32(len(r.Headers)))
	for i := range r.Headers {
		n += field(len(r.Headers[i].Key)) + field(len(r.Headers[i].Value))
	}
	return batchOverhead + kbin.VarintLen(int32(n)) + n
}

// join copies two.
func (a *arena) join(prefix, b []byte) []byte {
	n := len(prefix) + len(b)
	if n > byteChunk/4 {
		return append(append(make([]byte, 0, n), prefix...), b...)
	}
	if n > cap(a.bytes)-len(a.bytes) {
		a.bytes = make([]byte, 0, byteChunk)
	}
	start := len(a.bytes)
	a.bytes = append(append(a.bytes, prefix...), b...)
	return a.bytes[start:len(a.bytes):len(a.bytes)]
}

// run asks the registry until ctx ends.
func (f *framing) run(ctx context.Context) {
	if f.k.cfg.Registry == nil {
		return
	}
	recheck := time.NewTicker(f.recheck)
	defer recheck.Stop()
	defer f.k.registry.Store(nil)
	var latest []*framer // the goroutine's own
	for {
		select {
		case <-f.wake:
		case <-recheck.C:
			f.lookAgain(ctx, latest)
			continue
		case <-ctx.Done():
			return
		}
		f.mu.Lock()
		asked := f.asked
		f.asked = nil
		f.mu.Unlock()
		for _, wanted := range asked {
			found, err := f.find(ctx, wanted)
			if err != nil {
				return
			}
			if found && !registry.Fixed(*wanted.key.schema, wanted.key.at) {
				latest = append(latest, wanted)
			}
		}
	}
}

// find waits for ever for a registry that does not answer, as the rows do. An
// error ends the sink.
func (f *framing) find(ctx context.Context, wanted *framer) (found bool, err error) {
	var trouble repeat.Episode
	for {
		framer, err := f.k.cfg.Registry.Find(ctx, *wanted.key.schema, wanted.key.at)
		now := time.Now()
		unknown, isUnknown := errors.AsType[*registry.UnknownError](err)
		setup, isSetup := errors.AsType[*registry.SetupError](err)
		switch {
		case ctx.Err() != nil:
			return false, ctx.Err()
		case isSetup:
			f.box.PutErr(&SetupError{Found: setup.Found, Remedy: setup.Remedy})
			return false, err
		case isUnknown:
			f.answer(framerAnswer{wanted, nil, unknown})
			return false, nil
		case err == nil:
			if trouble.Open(now) {
				f.k.log.Info().Int("failures", trouble.Count()).Stringer("after", trouble.Lasted(now).Round(time.Millisecond)).
					Msg("the schema registry answers again: rows go on")
			}
			f.k.registry.Store(nil)
			f.answer(framerAnswer{wanted, framer, nil})
			return true, nil
		}
		why := err.Error()
		f.k.registry.Store(&why)
		if trouble.Trouble(why, now) {
			f.k.log.Warn().Err(err).Int("failures", trouble.Count()).Stringer("for", trouble.Lasted(now).Round(time.Millisecond)).
				Msg("the schema registry does not answer: rows that need it wait")
		}
		if err := sleep(ctx, lookoutPause); err != nil {
			return false, err
		}
	}
}

// lookAgain follows subjects to newer versions. A registry that does not answer
// now changes nothing.
func (f *framing) lookAgain(ctx context.Context, latest []*framer) {
	for _, l := range latest {
		if framer, err := f.k.cfg.Registry.Find(ctx, *l.key.schema, l.key.at); err == nil {
			f.answer(framerAnswer{l, framer, nil})
		}
	}
}

func (f *framing) answer(a framerAnswer) {
	f.mu.Lock()
	f.answered = append(f.answered, a)
	f.mu.Unlock()
	f.box.Signal()
}

// Prepare looks schemas up before a stream begins: what the registry does not
// have, or cannot use, is told before any row.
func (k *Kafka) Prepare(ctx context.Context, schemas []outbox.Schema, at []outbox.SchemaAt) error {
	if len(schemas) > 0 && k.cfg.Registry == nil {
		return &SetupError{Found: "schema-format is set, and no schema registry", Remedy: "set registry-url"}
	}
	for i := range schemas {
		_, err := k.cfg.Registry.Find(ctx, schemas[i], at[i])
		unknown, isUnknown := errors.AsType[*registry.UnknownError](err)
		setup, isSetup := errors.AsType[*registry.SetupError](err)
		switch {
		case err == nil:
		case isUnknown:
			return &SetupError{Found: unknown.Error(), Remedy: "check schema-subject, schema-version and schema-id"}
		case isSetup:
			return &SetupError{Found: setup.Found, Remedy: setup.Remedy}
		default:
			return fmt.Errorf("%w: %w", ErrRegistry, err)
		}
	}
	return nil
}
