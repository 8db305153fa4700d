package recovery

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/walstream/walstream/pkg/decode"
	"github.com/walstream/walstream/pkg/outbox"
	"github.com/walstream/walstream/pkg/sink"
)

// TopicRead is a topic as it was read.
type TopicRead struct {
	Topic      string `json:"topic"`
	Partitions int    `json:"partitions"`
	Missing    bool   `json:"missing,omitempty"` // it does not exist
	Records    uint64 `json:"records"`           // read
	Events     uint64 `json:"events"`            // of them: this pipeline's, with an event id
	// Cut: retention has removed records that may be of the time in doubt; Oldest is
	// that of the first one left, of the partition that has lost most.
	Cut       bool      `json:"cut,omitempty"`
	Oldest    time.Time `json:"oldest,omitzero"`
	Compacted bool      `json:"compacted,omitempty"` // it forgets by key
	Hidden    bool      `json:"hidden,omitempty"`    // an open transaction hides its end
}

// topics that the rows in doubt go to.
type topics struct {
	j       *Judge
	formats map[string]string // of values with a schema, by topic
	read    []TopicRead
	since   time.Time // what is earlier need not be read; zero: all
	Foreign uint64    // records that are not walstream's, or another pipeline's
	Unnamed uint64    // records of ours without an event id
	letters uint64
	unread  string // why the dead letters could not be read
}

const (
	// edge is how much earlier than its row a record may seem to be.
	edge = 10 * time.Minute
	// mostTopics bounds what rows may name: each is read.
	mostTopics = 10_000
)

func newTopics(j *Judge) *topics {
	t := &topics{j: j, formats: map[string]string{}}
	for _, m := range j.cfg.Mapping {
		if m.Topic != "" {
			t.formats[m.Topic] = m.SchemaFormat
		}
	}
	for _, name := range j.counts.Topics {
		if _, known := t.formats[name]; !known {
			t.formats[name] = ""
		}
	}
	t.since = j.counts.Since
	for i := range j.tables {
		// Times from a column are those of rows, and may be as old as these.
		if own := &j.tables[i]; own.time == "" || own.columns.Timestamp != "" {
			t.since = time.Time{}
		}
	}
	if !t.since.IsZero() {
		t.since = t.since.Add(-edge)
	}
	return t
}

// add a topic that a row names.
func (t *topics) add(name, format string) error {
	if known, ok := t.formats[name]; ok && (known != "" || format == "") || !sink.MayPublishTo(name) {
		return nil
	}
	if len(t.formats) == mostTopics {
		return fmt.Errorf("the rows in doubt name more than %d topics: recover a shorter --window", mostTopics)
	}
	t.formats[name] = format
	return nil
}

func (t *topics) readAll(ctx context.Context) error {
	names := make([]string, 0, len(t.formats))
	for name := range t.formats {
		names = append(names, name)
	}
	slices.Sort(names)
	kafka := t.j.cfg.Kafka
	stretches, err := kafka.Stretches(ctx, names, t.j.cfg.Wait)
	if err != nil {
		return err
	}
	if !t.since.IsZero() {
		if err := kafka.Since(ctx, stretches, t.since); err != nil {
			return err
		}
	}
	if err := t.describe(ctx, names, stretches); err != nil {
		return err
	}
	for i := range stretches {
		if err := t.stretch(ctx, &stretches[i]); err != nil {
			return err
		}
	}
	if err := t.readLetters(ctx); err != nil {
		return err
	}
	t.j.published.keys.Seal()
	return nil
}

func (t *topics) describe(ctx context.Context, names []string, stretches []sink.Stretch) error {
	var present []string
	partitions := sink.Partitions(stretches)
	for _, name := range names {
		n := partitions[name]
		t.read = append(t.read, TopicRead{Topic: name, Partitions: n, Missing: n == 0})
		if n > 0 {
			present = append(present, name)
		}
	}
	compacted, err := t.j.cfg.Kafka.Compacted(ctx, present)
	if err != nil {
		return err
	}
	for i := range t.read {
		t.read[i].Compacted = compacted[t.read[i].Topic]
	}
	return nil
}

// stretch reads one partition.
func (t *topics) stretch(ctx context.Context, s *sink.Stretch) error {
	read := &t.read[slices.IndexFunc(t.read, func(r TopicRead) bool { return r.Topic == s.Topic })]
	begin, n := max(s.Start, s.From), 0
	var first time.Time
	err := t.j.cfg.Kafka.ReadStretch(ctx, s, func(raw *sink.TopicRecord) error {
		if n++; n == 1 {
			first = raw.Timestamp
		}
		if read.Records++; read.Records%progressEvery == 0 {
			t.j.cfg.progress("read %d records of %s", read.Records, s.Topic)
		}
		return t.record(read, raw)
	})
	if err != nil {
		return err
	}
	read.Hidden = read.Hidden || s.Visible < s.End
	if s.Start > 0 && begin <= s.Start { // what lay before may have been of the time in doubt
		if !read.Cut || first.After(read.Oldest) {
			read.Oldest = first
		}
		read.Cut = true
	}
	return nil
}

func (t *topics) record(read *TopicRead, raw *sink.TopicRecord) error {
	var position, id, pipeline []byte
	for _, h := range raw.Headers {
		switch h.Key {
		case outbox.HeaderPosition:
			position = h.Value
		case outbox.HeaderEventID:
			id = h.Value
		case outbox.HeaderPipeline:
			pipeline = h.Value
		}
	}
	timeline, at, err := decode.ParseHeader(position)
	doubt := &t.j.counts
	switch {
	case err != nil, string(pipeline) != t.j.cfg.Pipeline && !slices.Contains(doubt.Earlier, string(pipeline)):
		t.Foreign++
		return nil
	case bytes.Equal(id, position):
		t.Unnamed++
		return nil
	}
	read.Events++
	value := outbox.Unframed(outbox.DataOf(raw.Value, raw.Headers), t.formats[read.Topic])
	lost := doubt.Lost != 0 && timeline == doubt.Timeline && at.CommitLSN >= doubt.Lost
	return t.j.published.record(id, read.Topic, value, lost)
}

// readLetters reads the dead letters, all there are: they are few.
func (t *topics) readLetters(ctx context.Context) error {
	_, err := t.j.cfg.Kafka.EachLetter(ctx, t.j.counts.Earlier, t.j.cfg.Wait, func(l *sink.Letter, _ *sink.TopicRecord) error {
		if l.EventID == "" || l.EventID == l.PositionText {
			return nil
		}
		t.letters++
		return t.j.published.letter([]byte(l.EventID), l.Topic)
	}, func(string, string, time.Time) {})
	if _, denied := errors.AsType[*sink.AccessError](err); denied {
		t.unread = err.Error()
		return nil
	}
	if err != nil {
		return fmt.Errorf("read the dead letters: %w", err)
	}
	return nil
}
