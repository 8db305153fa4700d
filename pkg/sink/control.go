package sink

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// pauseFormat of the record this release writes.
const pauseFormat = 1

// Pause is an operator's word on whether the pipeline may work. It stands in a
// topic of its own (docs/decisions/0007): the checkpoint topic is written by nobody
// but the lanes. The newest record of the pipeline's key counts; none is as good as
// one that says to go on.
type Pause struct {
	Format   int       `json:"format"`
	Pipeline string    `json:"pipeline"`
	Paused   bool      `json:"paused"`
	At       time.Time `json:"at"`
	Until    time.Time `json:"until,omitzero"` // zero: until somebody resumes
	By       string    `json:"by"`
	Reason   string    `json:"reason,omitempty"`
}

// InForce reports that the pipeline is to leave its slot in peace.
func (p Pause) InForce(now time.Time) bool {
	return p.Paused && (p.Until.IsZero() || now.Before(p.Until))
}

// String says it to people.
func (p Pause) String() string {
	if !p.Paused {
		return fmt.Sprintf("resumed at %s by %s", p.At.UTC().Format(time.RFC3339), p.By)
	}
	text := fmt.Sprintf("paused since %s by %s", p.At.UTC().Format(time.RFC3339), p.By)
	if !p.Until.IsZero() {
		text += ", until " + p.Until.UTC().Format(time.RFC3339)
	}
	if p.Reason != "" {
		text += ": " + p.Reason
	}
	return text
}

// PauseReader reads the pause again and again; while nobody writes, a look costs
// three small requests. For one goroutine.
type PauseReader struct {
	k    *Kafka
	id   [16]byte
	end  int64
	last Pause
}

// NewPauseReader returns one that has read nothing yet.
func (k *Kafka) NewPauseReader() *PauseReader { return &PauseReader{k: k} }

// ReadPause is one look.
func (k *Kafka) ReadPause(ctx context.Context) (Pause, error) { return k.NewPauseReader().Read(ctx) }

// Read returns the newest word, the zero value when there is none. It makes
// nothing. A missing topic is asked for once only: nobody waits at a start for a
// thing that most pipelines never have, and whoever follows it asks again.
func (r *PauseReader) Read(ctx context.Context) (Pause, error) {
	topic := r.k.cfg.controlTopic()
	explained := func(err error) error {
		return r.k.explain(err, "read whether the pipeline is paused", rightRead, topicResource(topic))
	}
	meta, err := r.k.metadata(ctx, []string{topic})
	if err != nil {
		return Pause{}, explained(err)
	}
	if len(meta.Topics) != 1 {
		return Pause{}, fmt.Errorf("the broker answered a question for topic %q without it", topic)
	}
	switch err := topicError(&meta.Topics[0]); {
	case isUnknownTopic(err):
		*r = PauseReader{k: r.k}
		return Pause{}, nil
	case err != nil:
		return Pause{}, explained(err)
	}
	t, err := r.k.tailOf(topic, &meta.Topics[0])
	if err != nil {
		return Pause{}, explained(err)
	}
	end, err := t.offset(ctx, offsetLatest, readCommitted)
	if err != nil {
		return Pause{}, explained(err)
	}
	if end == r.end && t.topicID == r.id {
		return r.last, nil
	}
	pause, err := t.pause(ctx, end)
	if err != nil {
		return Pause{}, explained(err)
	}
	r.id, r.end, r.last = t.topicID, end, pause
	return pause, nil
}

// pause is the newest record before end.
func (t *tail) pause(ctx context.Context, end int64) (Pause, error) {
	start, err := t.offset(ctx, offsetEarliest, readCommitted)
	if err != nil {
		return Pause{}, err
	}
	found, err := t.scan(ctx, start, end)
	if err != nil || found == nil || found.Value == nil {
		return Pause{}, err
	}
	var p Pause
	if err := json.Unmarshal(found.Value, &p); err != nil || p.Format < 1 || p.Format > pauseFormat {
		return Pause{}, &SetupError{
			Found:  fmt.Sprintf("the newest record of topic %q, at offset %d, is nothing that this walstream wrote", t.topic, found.Offset),
			Remedy: "write it anew with walstream pause or walstream resume of this release",
		}
	}
	return p, nil
}

// WritePause makes the word durable, and the topic when it is missing. Of two that
// are written the later one counts.
func (k *Kafka) WritePause(ctx context.Context, p Pause) error {
	p.Format, p.Pipeline = pauseFormat, k.cfg.Pipeline
	topic := k.cfg.controlTopic()
	const doing = "write whether the pipeline is paused"
	_, found, err := k.lookUpOne(ctx, topic)
	if err != nil {
		return k.explain(err, doing, rightDescribe, topicResource(topic))
	}
	if !found {
		if err := k.createOwn(ctx, topic); err != nil {
			return k.explain(err, doing, rightCreate, topicResource(topic))
		}
	}
	value, err := json.Marshal(p)
	if err != nil {
		return fmt.Errorf("%s: %w", doing, err)
	}
	client, err := k.newClient(k.producer(func(string) int32 { return clampBatch(defaultMaxMessage) }, nil))
	if err != nil {
		return err
	}
	defer client.Close()
	err = produceOne(ctx, client, &kgo.Record{Topic: topic, Partition: 0, Key: []byte(k.cfg.Pipeline), Value: value})
	if errors.Is(err, kerr.UnknownTopicOrPartition) {
		return k.explain(err, doing, rightDescribe, topicResource(topic))
	}
	return k.explain(err, doing, rightWrite, topicResource(topic))
}
