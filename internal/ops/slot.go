package ops

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/walstream/walstream/pkg/pipeline"
	"github.com/walstream/walstream/pkg/replication"
)

// slotHealth is what the slot costs and what holds it back, by the newest reading,
// whether or not anything is streamed.
type slotHealth struct {
	WALStatus      string     `json:"wal_status,omitempty"`
	RetainedBytes  *int64     `json:"retained_bytes,omitempty"`
	SafeWALSize    *int64     `json:"safe_wal_size,omitempty"`
	Budget         *budget    `json:"budget,omitempty"`
	InactiveSince  time.Time  `json:"inactive_since,omitzero"`
	Failover       *bool      `json:"failover,omitempty"`
	Synced         *bool      `json:"synced,omitempty"`
	CatalogXminAge *int64     `json:"catalog_xmin_age,omitempty"`
	WalsenderState string     `json:"walsender_state,omitempty"`
	WaitsFor       string     `json:"walsender_waits_for,omitempty"`
	Oldest         string     `json:"oldest_transaction,omitempty"`
	OldestSeconds  *float64   `json:"oldest_transaction_seconds,omitempty"`
	Decoding       *decodings `json:"decoding,omitempty"`
	ReadAt         time.Time  `json:"read_at,omitzero"`
	Error          string     `json:"error,omitempty"`
	Remedy         string     `json:"remedy,omitempty"`
}

// decodings are the server's counters, since the slot was made.
type decodings struct {
	SpilledTransactions  int64 `json:"spilled_transactions"`
	Spills               int64 `json:"spills"`
	SpilledBytes         int64 `json:"spilled_bytes"`
	StreamedTransactions int64 `json:"streamed_transactions"`
	Streams              int64 `json:"streams"`
	StreamedBytes        int64 `json:"streamed_bytes"`
	Transactions         int64 `json:"transactions"`
	Bytes                int64 `json:"bytes"`
}

func newSlotHealth(cfg *Config, p *pipeline.Progress, now time.Time) slotHealth {
	reading, known := p.SlotHealth(now)
	h := slotHealth{ReadAt: reading.At, WALStatus: reading.WALStatus, SafeWALSize: reading.SafeWALSize, Remedy: slotRemedy(reading.WALStatus)}
	if reading.Err != nil {
		h.Error, h.Remedy = reading.Err.Error(), sessionRemedy
	}
	if !known {
		if !p.ReadsSlot() {
			return slotHealth{Error: h.Error, Remedy: h.Remedy} // what was read last is of another time
		}
		return h
	}
	h.RetainedBytes, h.Budget = retained(p, now), budgetOf(cfg, p, now)
	if h.Budget != nil && h.Budget.Remedy != "" && h.Remedy == "" {
		h.Remedy = h.Budget.Remedy
	}
	if d := reading.Detail; d != nil {
		h.detail(d)
	}
	return h
}

func (h *slotHealth) detail(d *replication.SlotDetail) {
	h.Failover, h.Synced = d.Failover, d.Synced
	h.InactiveSince, h.CatalogXminAge = d.InactiveSince, &d.CatalogXminAge
	h.WalsenderState, h.WaitsFor = d.WalsenderState, d.WaitEvent
	if d.Oldest != nil {
		h.Oldest = d.Oldest.String()
		if !d.Oldest.Since.IsZero() {
			seconds := max(0, d.At.Sub(d.Oldest.Since)).Seconds()
			h.OldestSeconds = &seconds
		}
	}
	c := d.Decoding
	h.Decoding = &decodings{
		c.SpillTxns, c.SpillCount, c.SpillBytes, c.StreamTxns, c.StreamCount, c.StreamBytes, c.TotalTxns, c.TotalBytes,
	}
}

// retained is the WAL that the server keeps for the slot; nil when that is not
// known, or the slot holds none any more.
func retained(p *pipeline.Progress, now time.Time) *int64 {
	h, known := p.SlotHealth(now)
	if !known || h.Restart == 0 {
		return nil
	}
	end := h.WALEnd
	if p.ReadsSlot() {
		end = serverEnd(p)
	}
	bytes := distance(h.Restart, end)
	return &bytes
}

// walStatuses of pg_replication_slots, and walsenderStates of pg_stat_replication.
var (
	walStatuses     = []string{"reserved", "extended", "unreserved", "lost"}
	walsenderStates = []string{"startup", "catchup", "streaming", "backup", "stopping"}
)

var (
	slotReadable  = desc("slot_readable", "1 when the slot could just be read over the ordinary session, 0 when not: lag is unknown then, the stream may go on. /status has the error. Absent unless streaming or paused.")
	slotWALStatus = desc("slot_wal_status", "1 for the slot's wal_status in pg_replication_slots. unreserved: it is lost at the next checkpoint unless walstream catches up; raise max_slot_wal_keep_size now.", "wal_status")
	retainedBytes = desc("slot_retained_bytes", "WAL the server keeps for the slot; absent while it cannot be told. Grows: see walstream_lag_bytes; with lag 0, an old open or prepared transaction pins it, and /status names it.")
	retainedLimit = desc("slot_retained_limit_bytes", "What walstream_slot_retained_bytes may come to before health is red: --max-retained-wal. Absent without it.")
	safeBytes     = desc("slot_safe_wal_bytes", "WAL that may still be written before the slot can be lost; absent without max_slot_wal_keep_size. Near 0: raise that setting, it takes a reload only.")

	xminAge       = desc("slot_catalog_xmin_age_transactions", "Transactions since the slot's catalog_xmin: vacuum cleans no catalogue row that died later. Grows into the hundreds of millions: whatever holds the slot back bloats the catalogue; see walstream_slot_oldest_transaction_seconds.")
	inactiveFor   = desc("slot_inactive_seconds", "For how long nobody has read the slot, by the server's clock. Absent while somebody does, and before PostgreSQL 17. Beyond idle_replication_slot_timeout (18) the slot is lost: start walstream.")
	walsender     = desc("slot_walsender_state", "1 for the state of the slot's walsender in pg_stat_replication. catchup for long: see walstream_lag_bytes. Absent without a walsender, or the right pg_read_all_stats.", "state")
	standbyWait   = desc("slot_waits_for_standby", "1 while the server sends nothing until standby servers have what synchronized_standby_slots names: look at those, or take a dead one out of the setting.")
	oldestSeconds = desc("slot_oldest_transaction_seconds", "Age of the oldest open or prepared transaction that has written: WAL from before it is kept. 0 when there is none. Grows: /status names it; end it, or COMMIT/ROLLBACK PREPARED.", "kind")

	spilledTx    = desc("slot_spilled_transactions_total", "Transactions too large for logical_decoding_work_mem, which the server wrote to its disk. Rises steadily: raise that setting for our role (ALTER ROLE ... SET logical_decoding_work_mem).")
	spills       = desc("slot_spills_total", "How often the server wrote parts of such transactions to its disk.")
	spilledBytes = desc("slot_spilled_bytes_total", "Bytes the server wrote to its disk for such transactions, changes of other tables included. See walstream_slot_spilled_transactions_total.")
	decodedTx    = desc("slot_decoded_transactions_total", "Transactions the server decoded for the slot, of any table. Far above walstream_transactions_total on a busy server: that is what logical decoding costs.")
	decodedBytes = desc("slot_decoded_bytes_total", "Bytes of changes that the server decoded for the slot and handed to its output plugin.")
)

var slotDescs = []*prometheus.Desc{
	slotReadable, slotWALStatus, retainedBytes, retainedLimit, safeBytes, xminAge, inactiveFor, walsender, standbyWait, oldestSeconds,
	spilledTx, spills, spilledBytes, decodedTx, decodedBytes,
}

func (c *collector) slot(s sample, p *pipeline.Progress, now time.Time) {
	if p.ReadsSlot() {
		s.yes(slotReadable, p.SlotKnown(now))
	}
	if c.cfg.MaxRetainedWAL > 0 {
		s.gauge(retainedLimit, float64(c.cfg.MaxRetainedWAL))
	}
	h, known := p.SlotHealth(now)
	if !known {
		return
	}
	for _, status := range walStatuses {
		s.yes(slotWALStatus, h.WALStatus == status, status)
	}
	if kept := retained(p, now); kept != nil {
		s.gauge(retainedBytes, float64(*kept))
	}
	if h.SafeWALSize != nil {
		s.gauge(safeBytes, float64(*h.SafeWALSize))
	}
	if h.Detail != nil {
		s.detail(h.Detail)
	}
}

func (s sample) detail(d *replication.SlotDetail) {
	s.gauge(xminAge, float64(d.CatalogXminAge))
	if !d.InactiveSince.IsZero() {
		s.gauge(inactiveFor, max(0, d.At.Sub(d.InactiveSince)).Seconds())
	}
	if d.WalsenderState != "" {
		for _, state := range walsenderStates {
			s.yes(walsender, d.WalsenderState == state, state)
		}
	}
	s.yes(standbyWait, d.WaitsForStandby())
	ages := map[string]float64{"open": 0, "prepared": 0}
	if o := d.Oldest; o != nil && !o.Since.IsZero() {
		kind := "open"
		if o.Prepared != "" {
			kind = "prepared"
		}
		ages[kind] = max(0, d.At.Sub(o.Since)).Seconds()
	}
	for kind, age := range ages {
		s.gauge(oldestSeconds, age, kind)
	}
	for _, counter := range []struct {
		desc  *prometheus.Desc
		value int64
	}{
		{spilledTx, d.Decoding.SpillTxns},
		{spills, d.Decoding.SpillCount},
		{spilledBytes, d.Decoding.SpillBytes},
		{decodedTx, d.Decoding.TotalTxns},
		{decodedBytes, d.Decoding.TotalBytes},
	} {
		s.counter(counter.desc, uint64(max(0, counter.value)))
	}
}
