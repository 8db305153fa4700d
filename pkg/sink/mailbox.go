package sink

import (
	"sync"

	"github.com/walstream/walstream/pkg/checkpoint"
)

// Mailbox carries what happens on other goroutines to the loop. Put never blocks:
// it is called inside the Kafka client's promises, where waiting would stop the
// client. It holds no more acknowledgements than the ledger's window has rows.
type Mailbox struct {
	ready chan struct{} // one slot

	mu     sync.Mutex
	report checkpoint.Report
	acked  int64 // ever
	closed bool
}

// NewMailbox returns an empty one.
func NewMailbox() *Mailbox { return &Mailbox{ready: make(chan struct{}, 1)} }

// Put adds the acknowledgement of one row.
func (m *Mailbox) Put(t checkpoint.Ticket) {
	m.mu.Lock()
	if !m.closed {
		m.report.Acked = append(m.report.Acked, t)
		m.acked++
	}
	m.mu.Unlock()
	m.Signal()
}

// acknowledged is how many rows have been, ever.
func (m *Mailbox) acknowledged() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.acked
}

// PutDurable notes that a checkpoint covering edge is durable.
func (m *Mailbox) PutDurable(edge checkpoint.Edge) {
	m.mu.Lock()
	if !m.closed && edge.Covered > m.report.Durable.Covered {
		m.report.Durable = edge
	}
	m.mu.Unlock()
	m.Signal()
}

// PutErr notes the failure that ends the sink. The first one counts, and is
// reported by every Drain from then on.
func (m *Mailbox) PutErr(err error) {
	m.mu.Lock()
	if !m.closed && m.report.Err == nil {
		m.report.Err = err
	}
	m.mu.Unlock()
	m.Signal()
}

// Signal wakes the loop.
func (m *Mailbox) Signal() {
	select {
	case m.ready <- struct{}{}:
	default: // a signal is waiting already
	}
}

// Ready has a value when there is something to drain.
func (m *Mailbox) Ready() <-chan struct{} { return m.ready }

// Drain moves everything into report.
func (m *Mailbox) Drain(report *checkpoint.Report) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(report.Acked) == 0 { // trade buffers, so that neither grows anew
		report.Acked, m.report.Acked = m.report.Acked, report.Acked[:0]
	} else {
		report.Acked = append(report.Acked, m.report.Acked...)
		m.report.Acked = m.report.Acked[:0]
	}
	if m.report.Durable.Covered > report.Durable.Covered {
		report.Durable = m.report.Durable
	}
	m.report.Durable = checkpoint.Edge{}
	if report.Err == nil {
		report.Err = m.report.Err
	}
}

// Close empties the mailbox for good.
func (m *Mailbox) Close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed = true
	m.report = checkpoint.Report{}
}
