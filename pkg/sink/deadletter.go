package sink

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/walstream/walstream/pkg/outbox"
)

// Headers of a dead letter, beside the row's own.
const (
	headerLetter    = "walstream-dead-letter-"
	letterReason    = headerLetter + "reason"
	letterClass     = headerLetter + "class"
	letterTable     = headerLetter + "table"     // schema.name
	letterTopic     = headerLetter + "topic"     // where the row was to go
	letterPartition = headerLetter + "partition" // when the row asked for one
	letterKey       = headerLetter + "key"       // "none": the row has no key, the record's is its id
	letterTimestamp = headerLetter + "timestamp" // the row's; the record's is when it was decided
	letterSize      = headerLetter + "size"      // of the record that was not published
	letterValueSize = headerLetter + "value-size"
	letterSHA256    = headerLetter + "sha256" // of the row's value
	letterSchema    = headerLetter + "schema" // "missing": the value has not got the prefix it would have
	letterBy        = headerLetter + "by"     // who asked for it, with walstream skip
	// letterTruncated says which parts are not whole: "value", "headers", "key".
	letterTruncated = "walstream-truncated"
)

const (
	// deadLetterLimit is max.message.bytes of the topic, when walstream makes it: a
	// row that is too large for its own topic should fit here.
	deadLetterLimit = 64 << 20
	// truncatedValue is what is kept of a value that does not.
	truncatedValue = 64 << 10
	truncatedKey   = 1 << 10
	noKey          = "none"
	noSchema       = "missing"
)

// deadLetterSpec: dead letters stay until somebody deletes them. Order is kept by
// one partition; there are few.
func deadLetterSpec(name string, replicas int16, inSync string) topicSpec {
	return topicSpec{
		name: name, partitions: 1, replicas: replicas,
		configs: map[string]string{
			settingCleanup:    "delete",
			"retention.ms":    "-1",
			"retention.bytes": "-1",
			settingMinISR:     inSync,
			settingUnclean:    "false",
			settingMaxMessage: strconv.Itoa(deadLetterLimit),
		},
	}
}

func (k *Kafka) errForgetsLetters(topic, policy string) error {
	return &SetupError{
		Found:  "topic " + strconv.Quote(topic) + " has cleanup.policy=" + policy + ": Kafka would delete dead letters of the same key",
		Remedy: k.cfg.command("kafka-configs", "--alter --topic %s --add-config cleanup.policy=delete", topic),
	}
}

var errLetterTooLarge = errors.New("not even its beginning fits the topic of dead letters: raise max.message.bytes there")

// deadLetter makes the record that stands for a bad row, whole when it fits the
// limit. The event's bytes are the row's own.
func deadLetter(r *row, f *flaw, by string, limit int, now time.Time) (*outbox.Event, error) {
	e := &outbox.Event{
		Key: r.record.Key, Value: r.record.Value, Partition: -1, Timestamp: now,
		Position: r.position, RowID: r.rowID, Table: r.table,
	}
	add := func(name, value string) {
		e.Headers = append(e.Headers, outbox.Header{Key: name, Value: []byte(value)})
	}
	for _, h := range r.record.Headers {
		e.Headers = append(e.Headers, outbox.Header{Key: h.Key, Value: h.Value})
	}
	own := len(e.Headers)
	add(letterReason, shortened(f.Error()))
	add(letterClass, string(f.class))
	add(letterTable, r.table)
	add(letterTopic, shortened(r.record.Topic))
	add(letterSize, strconv.Itoa(r.size))
	if e.Value != nil {
		sum := sha256.Sum256(e.Value)
		add(letterValueSize, strconv.Itoa(len(e.Value)))
		add(letterSHA256, hex.EncodeToString(sum[:]))
	}
	if r.record.Partition >= 0 {
		add(letterPartition, strconv.Itoa(int(r.record.Partition)))
	}
	if e.Key == nil {
		e.Key = []byte(r.rowID)
		add(letterKey, noKey)
	}
	if r.framer != nil || r.unframed {
		add(letterSchema, noSchema)
	}
	if by != "" {
		add(letterBy, by)
	}
	add(letterTimestamp, r.record.Timestamp.UTC().Format(time.RFC3339Nano))
	return e, fitLetter(e, own, limit)
}

// fitLetter cuts what does not fit: the value, then the row's own headers but for
// walstream's, then the key, then the value once more.
func fitLetter(e *outbox.Event, own, limit int) error {
	if recordSize(e) <= limit {
		return nil
	}
	var cut []string
	whole := e.Headers
	fits := func(what string) bool {
		cut = append(cut, what)
		e.Headers = append(whole[:len(whole):len(whole)], outbox.Header{Key: letterTruncated, Value: []byte(strings.Join(cut, ","))})
		return recordSize(e) <= limit
	}
	if len(e.Value) > truncatedValue {
		if e.Value = e.Value[:truncatedValue]; fits("value") {
			return nil
		}
	}
	kept := make([]outbox.Header, 0, len(whole))
	for i, h := range whole {
		if i >= own || isOwn(h.Key) && len(h.Value) <= truncatedKey {
			kept = append(kept, h)
		}
	}
	if len(kept) < len(whole) {
		if whole = kept; fits("headers") {
			return nil
		}
	}
	if len(e.Key) > truncatedKey {
		if e.Key = e.Key[:truncatedKey]; fits("key") {
			return nil
		}
	}
	if !slices.Contains(cut, "value") {
		fits("value") // it says so in a header, and does not yet
	}
	if over := recordSize(e) - limit; over < len(e.Value) {
		e.Value = e.Value[:len(e.Value)-over]
		return nil
	}
	return errLetterTooLarge
}

// isOwn tells walstream's headers.
func isOwn(name string) bool { return strings.HasPrefix(name, "walstream-") }

// shortened text of a message: a topic name built from a column may be anything.
func shortened(text string) string {
	const most = 1 << 10
	if len(text) > most {
		return text[:most] + "..."
	}
	return text
}
