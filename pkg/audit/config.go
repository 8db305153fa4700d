package audit

import (
	"fmt"
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/walstream/walstream/pkg/outbox"
	"github.com/walstream/walstream/pkg/replication"
	"github.com/walstream/walstream/pkg/sink"
)

// Config of an audit.
type Config struct {
	Pipeline, Slot, Publication string
	Postgres                    replication.Options
	Kafka                       sink.Config
	Mapping                     []outbox.MappingConfig

	// Range of rows. Empty and zero bounds leave a side open; both bounds are
	// within it.
	FromID, ToID     string // of the id column, as PostgreSQL reads them
	FromTime, ToTime time.Time
	FromLSN, ToLSN   pglogrepl.LSN // of commits
	// TimeColumn is what times are of; empty: the mapping's timestamp column,
	// else created_at.
	TimeColumn string
	// Earlier pipelines of the same table: their records count as this one's.
	Earlier []string
	// Missing is told each row that is missing, by event id, else by row id. May be
	// nil. It is told of at most MostListed.
	Missing func(id string)
	// Topics to read beside those that the mapping and the rows name.
	Topics []string

	// Wait is how long the checkpoint may take to cover what was read of the
	// table, and open Kafka transactions to end.
	Wait time.Duration
	// Memory that the audit aims to stay within, buffers of both clients
	// included. What does not fit goes to temporary files.
	Memory  int64
	TempDir string // empty: the system's

	// Progress is told now and then how far it is; nil is nobody.
	Progress func(text string)
}

// LeastMemory is what the clients' buffers take, and a little to sort in.
const LeastMemory = 32 << 20

// SettingError is a range or setting that does not fit the table at hand.
type SettingError struct {
	Setting string
	Problem string
}

func (e *SettingError) Error() string { return e.Setting + ": " + e.Problem }

func settingError(setting, format string, args ...any) error {
	return &SettingError{Setting: setting, Problem: fmt.Sprintf(format, args...)}
}

// SetupError is something on the servers that stands in the way.
type SetupError struct {
	Found  string
	Remedy string
}

func (e *SetupError) Error() string { return e.Found + "; " + e.Remedy }

// MostListed rows are named to Config.Missing.
const MostListed = 100_000

func (c *Config) byID() bool   { return c.FromID != "" || c.ToID != "" }
func (c *Config) byTime() bool { return !c.FromTime.IsZero() || !c.ToTime.IsZero() }

// check what needs no server.
func (c *Config) check() error {
	switch {
	case c.ToLSN != 0 && c.FromLSN > c.ToLSN:
		return settingError("to-lsn", "%s lies before from-lsn, %s", c.ToLSN, c.FromLSN)
	case !c.ToTime.IsZero() && c.FromTime.After(c.ToTime):
		return settingError("to-time", "%s lies before from-time, %s", c.ToTime.Format(time.RFC3339), c.FromTime.Format(time.RFC3339))
	case c.byID() && len(c.Mapping) > 1:
		return settingError("from-id, to-id", "the ids of %d tables have nothing to do with each other: audit one table, or a range of times", len(c.Mapping))
	case c.Memory < LeastMemory:
		return settingError("memory", "%d bytes are less than the %d that the buffers take", c.Memory, LeastMemory)
	}
	return nil
}

func (c *Config) scope() scope {
	return scope{
		tables: len(c.Mapping), byTable: c.byID() || c.byTime(), claimed: c.FromID != "" || !c.FromTime.IsZero() || c.FromLSN != 0,
		from: c.FromLSN, to: c.ToLSN,
	}
}

func (c *Config) progress(format string, args ...any) {
	if c.Progress != nil {
		c.Progress(fmt.Sprintf(format, args...))
	}
}
