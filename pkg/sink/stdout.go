package sink

import (
	"bufio"
	"encoding/json"
	"io"
	"time"
	"unicode/utf8"

	"github.com/walstream/walstream/pkg/checkpoint"
	"github.com/walstream/walstream/pkg/outbox"
	"github.com/walstream/walstream/pkg/sink/registry"
)

// Stdout prints events, one JSON line each, for looking. A row counts as
// acknowledged when it is printed, and a checkpoint as durable at once, in memory
// only: nothing printed here may be confirmed to a slot that is kept. Printing
// blocks when the reader does; nothing depends on it.
type Stdout struct {
	out *bufio.Writer
	box *Mailbox
	err error
}

// NewStdout prints to w.
func NewStdout(w io.Writer) *Stdout {
	return &Stdout{out: bufio.NewWriter(w), box: NewMailbox()}
}

// line is an event as people read it. Bytes that are not text go out in base64,
// under another name.
type line struct {
	Position    string       `json:"position"`
	ID          string       `json:"id,omitempty"`
	Topic       string       `json:"topic"`
	Partition   *int32       `json:"partition,omitempty"`
	Timestamp   *time.Time   `json:"timestamp,omitempty"`
	Key         *string      `json:"key"`
	KeyBase64   []byte       `json:"key_base64,omitempty"`
	Headers     []headerLine `json:"headers,omitempty"`
	Value       *string      `json:"value"`
	ValueBase64 []byte       `json:"value_base64,omitempty"`
	// Schema whose id would stand before the value: it is not here, because looking
	// asks no registry, and registers nothing.
	Schema string `json:"schema_prefix_missing,omitempty"`
}

type headerLine struct {
	Key         string  `json:"key"`
	Value       *string `json:"value"`
	ValueBase64 []byte  `json:"value_base64,omitempty"`
}

// Submit prints the event.
func (s *Stdout) Submit(e *outbox.Event, t checkpoint.Ticket) {
	if s.err != nil {
		return
	}
	l := line{Position: e.Position.String(), ID: e.RowID, Topic: e.Topic}
	if e.Partition >= 0 {
		l.Partition = &e.Partition
	}
	if !e.Timestamp.IsZero() {
		l.Timestamp = &e.Timestamp
	}
	l.Key, l.KeyBase64 = readable(e.Key)
	l.Value, l.ValueBase64 = readable(e.Value)
	if e.Schema != nil {
		l.Schema = registry.Name(e.SchemaAt)
	}
	for _, h := range e.Headers {
		out := headerLine{Key: h.Key}
		out.Value, out.ValueBase64 = readable(h.Value)
		l.Headers = append(l.Headers, out)
	}
	text, err := json.Marshal(l)
	if err == nil {
		_, err = s.out.Write(append(text, '\n'))
	}
	if err != nil {
		s.fail(err)
		return
	}
	s.box.Put(t)
}

// Reject ends the looking: it shows events.
func (s *Stdout) Reject(_ *outbox.Event, bad *outbox.RowError, _ checkpoint.Ticket) {
	if s.err == nil {
		s.fail(bad)
	}
}

func readable(b []byte) (*string, []byte) {
	if b == nil {
		return nil, nil
	}
	if !utf8.Valid(b) {
		return nil, b
	}
	text := string(b)
	return &text, nil
}

func (s *Stdout) fail(err error) {
	s.err = err
	s.box.PutErr(err)
}

// Begin: nothing to do before the rows come.
func (s *Stdout) Begin(checkpoint.Edge) {}

// End lets the transaction be seen.
func (s *Stdout) End(checkpoint.Edge) {
	if err := s.out.Flush(); err != nil && s.err == nil {
		s.fail(err)
	}
}

// Checkpoint is durable at once.
func (s *Stdout) Checkpoint(edge checkpoint.Edge) { s.box.PutDurable(edge) }

// Drain moves what has happened into report.
func (s *Stdout) Drain(report *checkpoint.Report) { s.box.Drain(report) }

// Ready has a value when there is something to drain.
func (s *Stdout) Ready() <-chan struct{} { return s.box.Ready() }
