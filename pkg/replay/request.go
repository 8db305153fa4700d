package replay

import (
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pglogrepl"
)

// Source of the rows.
type Source string

const (
	Auto  Source = "auto" // the WAL where it covers the request, else the tables
	Table Source = "table"
	WAL   Source = "wal"
)

// Request says which rows are to be published once more. Both bounds belong to a
// range.
type Request struct {
	// Text is the request as it was written: the same text is the same replay.
	Text string

	FromLSN, ToLSN   *pglogrepl.LSN // of commits
	FromTime, ToTime time.Time      // of the rows, by TimeColumn
	FromID, ToID     string
	TimeColumn       string // empty: the mapping's timestamp column, else created_at

	Key         *string
	Topic       string
	TopicPrefix string // before the topic's name
	Source      Source
}

// SettingError is a request that makes no sense as it is.
type SettingError struct{ Setting, Problem string }

func (e *SettingError) Error() string { return "--" + e.Setting + " " + e.Problem }

// SetupError is something on the servers that stands in the way. Nothing was sent.
type SetupError struct{ Found, Remedy string }

func (e *SetupError) Error() string { return e.Found + "; " + e.Remedy }

func (q *Request) byLSN() bool { return q.FromLSN != nil || q.ToLSN != nil }

// Check says what is wrong with it whatever the servers hold.
func (q *Request) Check() error {
	id := func(setting, text string) error {
		if _, err := strconv.ParseInt(text, 10, 64); text != "" && err != nil {
			return &SettingError{setting, "is no integer: only such ids have the order of their making; take --from-time"}
		}
		return nil
	}
	if err := id("from-id", q.FromID); err != nil {
		return err
	}
	if err := id("to-id", q.ToID); err != nil {
		return err
	}
	from, _ := strconv.ParseInt(q.FromID, 10, 64)
	to, _ := strconv.ParseInt(q.ToID, 10, 64)
	switch {
	case q.FromLSN == nil && q.FromTime.IsZero() && q.FromID == "":
		return &SettingError{"from-lsn, --from-time or --from-id", "is required: from where on"}
	case q.FromLSN == nil && q.ToLSN != nil:
		return &SettingError{"to-lsn", "wants --from-lsn: an LSN bounds nothing that begins with an id or a time"}
	case q.FromLSN != nil && (!q.FromTime.IsZero() || q.FromID != ""):
		return &SettingError{"from-lsn", "goes with neither --from-time nor --from-id: choose one"}
	case q.FromLSN != nil && (!q.ToTime.IsZero() || q.ToID != ""):
		return &SettingError{"from-lsn", "goes with --to-lsn only"}
	case q.ToLSN != nil && *q.ToLSN < *q.FromLSN:
		return &SettingError{"to-lsn", fmt.Sprintf("%s lies before --from-lsn %s", *q.ToLSN, *q.FromLSN)}
	case !q.FromTime.IsZero() && !q.ToTime.IsZero() && q.ToTime.Before(q.FromTime):
		return &SettingError{"to-time", "lies before --from-time"}
	case q.FromID != "" && q.ToID != "" && to < from:
		return &SettingError{"to-id", "lies before --from-id"}
	case q.Source == WAL && !q.byLSN():
		return &SettingError{"source", "wal takes --from-lsn: nothing says from which LSN on ids and times are"}
	}
	return nil
}
