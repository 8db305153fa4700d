package ops

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// retention beside the stream; counts are since the process began.
type retention struct {
	Deleted  int64     `json:"rows_deleted"`
	Stamped  int64     `json:"rows_stamped"`
	Dropped  int64     `json:"partitions_dropped"`
	Left     int64     `json:"rows_left"`
	Oldest   time.Time `json:"oldest_row,omitzero"`
	PassedAt time.Time `json:"passed_at,omitzero"`
	Waits    string    `json:"waits,omitempty"`
	Error    string    `json:"error,omitempty"`
	ErrorAt  time.Time `json:"error_at,omitzero"`
}

func newRetention(cfg *Config) *retention {
	if cfg.Retention == nil {
		return nil
	}
	r := cfg.Retention()
	return &retention{
		Deleted: r.Deleted, Stamped: r.Stamped, Dropped: r.Dropped, Left: r.Left, Oldest: r.Oldest,
		PassedAt: r.PassedAt, Waits: r.Waits, Error: r.Err, ErrorAt: r.ErrAt,
	}
}

var (
	deletedRows = desc("retention_rows_deleted_total", "Rows that --retention deleted, all of them published before. Absent without it or --stamp, as the others here; 0 on an instance that stands by.")
	stampedRows = desc("retention_rows_stamped_total", "Rows whose --stamp column was set, all of them published before.")
	droppedRows = desc("retention_partitions_dropped_total", "Partitions that --drop-partitions detached and dropped, all of whose rows were published before.")
	oldestRow   = desc("retention_oldest_row_timestamp_seconds", "When the oldest row left was made, as of the last pass; absent without an index on that column. Older than --retention for long: see walstream_retention_failing.")
	passTime    = desc("retention_last_pass_timestamp_seconds", "When the last pass through the tables was completed; absent before the first one. A pass gives way to a stream that is behind.")
	failing     = desc("retention_failing", "1 when the last pass ended early by an error, which /status and the log have; the next one tries again, and the stream goes on. 1 for long: the table grows.")
)

var retentionDescs = []*prometheus.Desc{deletedRows, stampedRows, droppedRows, oldestRow, passTime, failing}

func (c *collector) retention(s sample) {
	if c.cfg.Retention == nil {
		return
	}
	r := c.cfg.Retention()
	s.counter(deletedRows, uint64(r.Deleted))
	s.counter(stampedRows, uint64(r.Stamped))
	s.counter(droppedRows, uint64(r.Dropped))
	if !r.Oldest.IsZero() {
		s.gauge(oldestRow, float64(r.Oldest.Unix()))
	}
	if !r.PassedAt.IsZero() {
		s.gauge(passTime, float64(r.PassedAt.UnixMilli())/1000)
	}
	s.yes(failing, r.Err != "")
}
