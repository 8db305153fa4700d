package audit

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/walstream/walstream/pkg/decode"
	"github.com/walstream/walstream/pkg/outbox"
	"github.com/walstream/walstream/pkg/sink"
)

// headerReplay marks what walstream replay has published again.
const headerReplay = "walstream-replay"

// edgeTime is how much later than its record a row may seem to be made: records
// of a partition are about in the order of their times.
const edgeTime = 10 * time.Minute

// TopicRead is a topic as it was read.
type TopicRead struct {
	Topic      string `json:"topic"`
	Partitions int    `json:"partitions"`
	Records    int64  `json:"records"`
	Missing    bool   `json:"missing,omitempty"` // it does not exist
}

// topics reads the topics into the judge.
type topics struct {
	cfg     *Config
	kafka   *sink.Kafka
	judge   *judge
	since   time.Time // what is earlier need not be read; zero: all
	facts   map[string]topicFacts
	read    []TopicRead
	unknown []string // topics whose cleanup.policy may not be read
}

// topicsOf are those that the mapping, the rows and the user name.
func topicsOf(cfg *Config, fromRows []string) []string {
	all := append(slices.Clone(fromRows), cfg.Topics...)
	for _, m := range cfg.Mapping {
		if m.Topic != "" {
			all = append(all, m.Topic)
		}
	}
	// Nothing was published to names that no row may go to: they belong to bad rows.
	all = slices.DeleteFunc(all, func(name string) bool { return !sink.MayPublishTo(name) })
	slices.Sort(all)
	return slices.Compact(all)
}

func (t *topics) readAll(ctx context.Context, names []string) error {
	stretches, err := t.kafka.Stretches(ctx, names, t.cfg.Wait)
	if err != nil {
		return err
	}
	var present []string
	partitions := sink.Partitions(stretches)
	for _, name := range names {
		n := partitions[name]
		t.read = append(t.read, TopicRead{Topic: name, Partitions: n, Missing: n == 0})
		if n > 0 {
			present = append(present, name)
		}
	}
	compacted, err := t.kafka.Compacted(ctx, present)
	if err != nil {
		return err
	}
	for _, name := range present {
		byKey, known := compacted[name]
		t.facts[name] = topicFacts{compacted: byKey}
		if !known {
			t.unknown = append(t.unknown, name)
		}
	}
	if !t.since.IsZero() {
		if err := t.kafka.Since(ctx, stretches, t.since); err != nil {
			return err
		}
	}
	for i := range stretches {
		if err := t.stretch(ctx, &stretches[i]); err != nil {
			return err
		}
	}
	return nil
}

// stretch reads one partition.
func (t *topics) stretch(ctx context.Context, s *sink.Stretch) error {
	number := t.judge.place(s.Topic, s.Partition)
	read := &t.read[slices.IndexFunc(t.read, func(r TopicRead) bool { return r.Topic == s.Topic })]
	var first time.Time
	n := int64(0)
	err := t.kafka.ReadStretch(ctx, s, func(raw *sink.TopicRecord) error {
		if n++; n == 1 {
			first = raw.Timestamp
		}
		read.Records++
		if read.Records%progressEvery == 0 {
			t.cfg.progress("read %d records of %s", read.Records, s.Topic)
		}
		r := record{
			place: number, offset: raw.Offset, key: raw.Key, value: raw.Value,
			producer: raw.ProducerID, transactional: raw.Transactional,
		}
		if !t.ours(&r, raw.Headers) {
			return nil
		}
		return t.judge.addRecord(&r)
	})
	if err != nil {
		return err
	}
	f := t.facts[s.Topic]
	f.hidden = f.hidden || s.Visible < s.End
	if s.Start > 0 {
		f.forget(first)
	}
	t.facts[s.Topic] = f
	return nil
}

// forget notes a partition that has forgotten what lay before its first record;
// the zero time is that of one which is empty.
func (f *topicFacts) forget(first time.Time) {
	younger := int64(0)
	if !first.IsZero() {
		younger = first.Add(edgeTime).UnixMicro()
	}
	if !f.forgets || younger == 0 || f.younger != 0 && younger > f.younger {
		f.younger = younger
	}
	f.forgets = true
}

// ours takes what walstream wrote into the headers. A record that it did not
// write, or that another pipeline did, is not ours.
func (t *topics) ours(r *record, headers []outbox.Header) bool {
	var position, id, pipeline []byte
	for _, h := range headers {
		switch h.Key {
		case outbox.HeaderPosition:
			position = h.Value
		case outbox.HeaderEventID:
			id = h.Value
		case outbox.HeaderPipeline:
			pipeline = h.Value
		case headerReplay:
			r.replay = true
		}
	}
	timeline, p, err := decode.ParseHeader(position)
	switch {
	case err != nil:
		t.judge.result.Foreign++
		return false
	case string(pipeline) != t.cfg.Pipeline && !slices.Contains(t.cfg.Earlier, string(pipeline)):
		t.judge.result.OtherRecords++
		return false
	}
	r.value = outbox.DataOf(r.value, headers)
	r.timeline, r.lsn, r.ordinal = timeline, p.CommitLSN, p.Ordinal
	if !bytes.Equal(id, position) {
		r.id = id
	}
	return true
}

// notes say what is to be known of the topics.
func (t *topics) notes() (notes []string) {
	add := func(format string, args ...any) { notes = append(notes, fmt.Sprintf(format, args...)) }
	for _, r := range t.read {
		f := t.facts[r.Topic]
		switch {
		case r.Missing:
			add("topic %s does not exist", r.Topic)
		case f.compacted:
			add("topic %s is compacted: of rows that are not found in it nothing can be said", r.Topic)
		case f.forgets && t.judge.scope.claimed:
			add("topic %s has forgotten records; rows of the range that are not found count as missing", r.Topic)
		case f.forgets && f.younger == 0:
			add("topic %s has forgotten all records of a partition: of rows that are not found nothing can be said without a range (--from-time, --from-id)", r.Topic)
		case f.forgets:
			add("topic %s has forgotten records: of rows made up to %s nothing can be said when they are not found",
				r.Topic, time.UnixMicro(f.younger).UTC().Format(time.RFC3339))
		}
		if f.hidden {
			add("a transaction that is still open hides the end of topic %s", r.Topic)
		}
	}
	if len(t.unknown) > 0 {
		add("whether %s forget records by key (cleanup.policy) may not be read", strings.Join(t.unknown, ", "))
	}
	return notes
}
