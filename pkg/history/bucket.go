package history

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pglogrepl"
)

// FormatVersion of the record written by this release. A newer one is refused.
const FormatVersion = 1

// Bucket is what was published over one stretch of the WAL: the rows of the
// transactions whose end lies beyond From and not beyond To. The commit LSN of such a
// transaction is not below From, and below To.
type Bucket struct {
	Pipeline string
	SystemID string
	Timeline uint32
	Database string

	From, To pglogrepl.LSN // exclusive, inclusive: of transactions' ends
	Tally

	// Unfinished: it is no record of the topic yet, but stands in the checkpoint.
	Unfinished bool
	Version    string
}

// wireTally carries the LSNs as text, the way people read them.
type wireTally struct {
	From      string    `json:"from"`         // exclusive
	To        string    `json:"to,omitempty"` // inclusive
	First     string    `json:"first_commit_lsn,omitempty"`
	Last      string    `json:"last_commit_lsn,omitempty"`
	FirstTime time.Time `json:"least_commit_time,omitzero"`
	LastTime  time.Time `json:"greatest_commit_time,omitzero"`
	Rows      uint64    `json:"rows"`
	Bytes     uint64    `json:"bytes"`
	Tables    []Range   `json:"tables,omitempty"`
}

type wireBucket struct {
	Format   int    `json:"format"`
	Pipeline string `json:"pipeline"`
	SystemID string `json:"system_identifier"`
	Timeline uint32 `json:"timeline"`
	Database string `json:"database"`
	wireTally
	Version string `json:"walstream_version"`
}

func toWire(from, to pglogrepl.LSN, t *Tally) wireTally {
	w := wireTally{
		From: from.String(), Rows: t.Rows(), Bytes: t.Bytes, FirstTime: t.FirstTime.UTC(), LastTime: t.LastTime.UTC(),
		Tables: append([]Range(nil), t.Tables...),
	}
	if to != 0 {
		w.To = to.String()
	}
	if t.First != 0 {
		w.First, w.Last = t.First.String(), t.Last.String()
	}
	for i := range w.Tables {
		w.Tables[i].Created = w.Tables[i].Created.UTC()
	}
	return w
}

func (w *wireTally) read() (from, to pglogrepl.LSN, t Tally, err error) {
	for _, f := range []struct {
		name, text string
		lsn        *pglogrepl.LSN
	}{{"from", w.From, &from}, {"to", w.To, &to}, {"first_commit_lsn", w.First, &t.First}, {"last_commit_lsn", w.Last, &t.Last}} {
		if f.text == "" && f.lsn != &from {
			continue
		}
		if *f.lsn, err = ParseLSN(f.text); err != nil {
			return from, to, t, fmt.Errorf("%s %q: %w", f.name, f.text, err)
		}
	}
	t.FirstTime, t.LastTime, t.Bytes, t.Tables = w.FirstTime, w.LastTime, w.Bytes, w.Tables
	if rows := t.Rows(); rows != w.Rows {
		return from, to, t, fmt.Errorf("%d rows, and %d in its tables", w.Rows, rows)
	}
	for i := range t.Tables {
		if r := &t.Tables[i]; r.Numbered > r.Rows || r.Timed > r.Rows || r.Least > r.Greatest {
			return from, to, t, fmt.Errorf("table %q contradicts itself", r.Table)
		}
	}
	return from, to, t, nil
}

// MarshalJSON is how it stands in a checkpoint.
func (o *Open) MarshalJSON() ([]byte, error) { return json.Marshal(toWire(o.From, 0, &o.Tally)) }

// UnmarshalJSON reads what MarshalJSON wrote.
func (o *Open) UnmarshalJSON(data []byte) (err error) {
	var w wireTally
	if err := json.Unmarshal(data, &w); err != nil {
		return err
	}
	if o.From, _, o.Tally, err = w.read(); err != nil {
		return fmt.Errorf("history: %w", err)
	}
	return nil
}

// Encode returns the record's JSON.
func (b *Bucket) Encode() ([]byte, error) {
	return json.Marshal(wireBucket{
		Format: FormatVersion, Pipeline: b.Pipeline, SystemID: b.SystemID, Timeline: b.Timeline, Database: b.Database,
		wireTally: toWire(b.From, b.To, &b.Tally), Version: b.Version,
	})
}

// ErrNewerFormat: the bucket was written by a release this one cannot read.
var ErrNewerFormat = errors.New("history has a newer format than this release reads; take the release that wrote it, or a later one")

// Decode reads what Encode wrote.
func Decode(value []byte) (b Bucket, err error) {
	var w wireBucket
	if err := json.Unmarshal(value, &w); err != nil {
		return b, fmt.Errorf("decode history: %w", err)
	}
	switch {
	case w.Format > FormatVersion:
		return b, fmt.Errorf("%w (format %d by walstream %q, this one reads up to %d)", ErrNewerFormat, w.Format, w.Version, FormatVersion)
	case w.Format < 1:
		return b, fmt.Errorf("decode history: format %d is no history of walstream", w.Format)
	}
	b.Pipeline, b.SystemID, b.Timeline, b.Database, b.Version = w.Pipeline, w.SystemID, w.Timeline, w.Database, w.Version
	if b.From, b.To, b.Tally, err = w.read(); err != nil {
		return b, fmt.Errorf("decode history: %w", err)
	}
	if b.To <= b.From {
		return b, fmt.Errorf("decode history: it ends at %s and begins at %s", b.To, b.From)
	}
	return b, nil
}

// ParseLSN is exact where pglogrepl.ParseLSN takes what follows an LSN, and
// halves of more than 32 bits.
func ParseLSN(s string) (pglogrepl.LSN, error) {
	high, low, _ := strings.Cut(s, "/")
	h, err := strconv.ParseUint(high, 16, 32)
	if err != nil {
		return 0, err
	}
	l, err := strconv.ParseUint(low, 16, 32)
	return pglogrepl.LSN(h<<32 | l), err
}
