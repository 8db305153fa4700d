package pipeline

import (
	"fmt"
	"time"

	"github.com/jackc/pglogrepl"
)

// Pacer knows when a status update or a probe is due. It has no clock of its
// own. In every status received >= confirmed > 0, and both only rise.
type Pacer struct {
	interval  time.Duration // between status updates
	silence   time.Duration // wal_sender_timeout in force: silence after which the server is probed; 0 = never
	sentAt    time.Time
	heardAt   time.Time
	probedAt  time.Time
	received  pglogrepl.LSN
	confirmed pglogrepl.LSN
}

// NewPacer sends status updates every interval, or thrice within
// walSenderTimeout (0: the server has none) if that is shorter.
func NewPacer(interval, walSenderTimeout time.Duration, now time.Time) *Pacer {
	if walSenderTimeout > 0 {
		interval = min(interval, walSenderTimeout/3)
	}
	return &Pacer{interval: interval, silence: walSenderTimeout, sentAt: now, heardAt: now}
}

// Heard notes that bytes were received, or that we are the ones not reading.
func (p *Pacer) Heard(now time.Time) { p.heardAt = now }

// Silence is how long the server has sent nothing.
func (p *Pacer) Silence(now time.Time) time.Duration { return now.Sub(p.heardAt) }

// Silent reports silence beyond one and a half times wal_sender_timeout. That is
// not death: a walsender busy with a large transaction may say nothing for
// seconds. Somebody else has to be asked.
func (p *Pacer) Silent(now time.Time) bool {
	return p.silence > 0 && p.Silence(now) > p.silence*3/2
}

// confirmGap spaces the status updates that are sent because the confirmed LSN
// moved: WAL is not kept longer than needed, and a busy stream does not answer
// every transaction with a status.
const confirmGap = 100 * time.Millisecond

// ConfirmDue reports that a moved position may be told.
func (p *Pacer) ConfirmDue(now time.Time) bool { return now.Sub(p.sentAt) >= confirmGap }

// StatusDue reports that the timer has run out.
func (p *Pacer) StatusDue(now time.Time) bool { return now.Sub(p.sentAt) >= p.interval }

// ProbeDue reports that the server has been silent so long that it should be
// asked for a reply. It asks at most once an interval.
func (p *Pacer) ProbeDue(now time.Time) bool {
	return p.silence > 0 && p.Silence(now) > p.silence/2 && now.Sub(p.probedAt) >= p.interval
}

// Confirmed is the LSN confirmed by the last status.
func (p *Pacer) Confirmed() pglogrepl.LSN { return p.confirmed }

// Probed notes that a status asked for a reply.
func (p *Pacer) Probed(now time.Time) { p.probedAt = now }

// Sent notes a status update, and stops the process on one that would move
// backwards or confirm nothing.
func (p *Pacer) Sent(received, confirmed pglogrepl.LSN, now time.Time) {
	if confirmed == 0 || received < confirmed || confirmed < p.confirmed || received < p.received {
		panic(fmt.Sprintf("walstream: bug: status update received=%s confirmed=%s after received=%s confirmed=%s",
			received, confirmed, p.received, p.confirmed))
	}
	p.received, p.confirmed, p.sentAt = received, confirmed, now
}
