package ops

import (
	"fmt"
	"time"

	"github.com/walstream/walstream/pkg/pipeline"
)

const silence = "the server sends nothing though its walsender is alive: it decodes a large transaction, or waits for a synchronized standby slot"

// unheard is how long both connections are silent before that is the cause of a
// stall: longer than the session takes for one answer.
const unheard = 5 * time.Second

// cause names what holds a stalled pipeline up, and what a person does about it.
func cause(p *pipeline.Progress) (cause, remedy string) {
	switch {
	case p.State == pipeline.Standby && p.ForeignHolder:
		return p.Reason, "Where the holder is walstream under a newer --pipeline: give this instance that name, or stop it. Else end the holder by the statement of the reason."
	case p.Reason != "":
		return p.Reason, stateRemedy(p.State)
	case !p.HoldsSlot():
		return "not streaming yet", stateRemedy(p.State)
	case !p.HeardAt.IsZero() && p.At.Sub(p.HeardAt) > unheard:
		return fmt.Sprintf("PostgreSQL has said nothing since %s, on either connection", p.HeardAt.UTC().Format(time.RFC3339)),
			"See that the server can be reached from here. It connects anew when the walsender's time-out has passed; nothing is lost meanwhile."
	case p.InFlightEvents > 0:
		return fmt.Sprintf("%d rows wait for Kafka to acknowledge them", p.InFlightEvents) + because(p.Trouble),
			"See that the brokers answer and that each topic has min.insync.replicas in sync. Nothing is lost and nothing is confirmed meanwhile."
	case p.Snapshot != nil:
		return "the snapshot waits for PostgreSQL to deliver rows", "Look at pg_stat_activity for our session that reads the outbox: what it waits for, and whether --snapshot-where has an index."
	case p.Confirmed < p.Published:
		return "the checkpoint is not durable: Kafka does not answer" + because(p.Trouble),
			"See that the brokers answer, and that the checkpoint topic and __transaction_state have a leader and min.insync.replicas in sync."
	case p.Health.Err != nil:
		return "the ordinary session cannot reach the server", sessionRemedy
	case p.Silent:
		return silence, "Look at pg_stat_activity for a large or long transaction, and at synchronized_standby_slots for a standby that is down. It goes on by itself."
	}
	return "the server has WAL that it does not send",
		"Look at pg_stat_replication for our walsender, and at synchronized_standby_slots for a standby that is down."
}

const sessionRemedy = "See that the server takes connections of our role: pg_hba.conf, max_connections, the role's CONNECTION LIMIT. The stream may go on; lag is unknown meanwhile."

// stateRemedy is what a person does about a pipeline that does not stream.
func stateRemedy(s pipeline.State) string {
	switch s {
	case pipeline.Connecting:
		return "Nothing yet: it is on its way. Where it waits for open transactions, they are named with their PIDs; it goes on when they end."
	case pipeline.Standby:
		return "Nothing: it takes over when the slot is free. Where no instance streams, end the holder that is named."
	case pipeline.Paused:
		return "Nothing, if it is meant: rows wait, and the server keeps WAL for the slot meanwhile. walstream resume, with the settings of this instance, ends it."
	case pipeline.Waiting:
		return "It starts again by itself. Where the reason stays, mend what it names: walstream check names each missing thing and the fix."
	case pipeline.Refused:
		return "It needs a person: going on would lose or double rows. The message names the way out; the README's table has each with its remedy."
	case pipeline.Snapshotting, pipeline.Streaming, pipeline.Draining, pipeline.Stopped:
	}
	return ""
}

// slotRemedy is what a person does about the slot's health.
func slotRemedy(walStatus string) string {
	switch walStatus {
	case "unreserved":
		return "The slot is lost at the server's next checkpoint unless walstream catches up: raise max_slot_wal_keep_size now (ALTER SYSTEM, then SELECT pg_reload_conf())."
	case "lost":
		return "The slot is lost. Publish the rows behind the checkpoint from the table, and start under another pipeline."
	}
	return ""
}

func because(trouble string) string {
	if trouble == "" {
		return ""
	}
	return " (" + trouble + ")"
}
