package pipeline

import (
	"context"
	"errors"

	"github.com/walstream/walstream/pkg/checkpoint"
	"github.com/walstream/walstream/pkg/decode"
	"github.com/walstream/walstream/pkg/outbox"
	"github.com/walstream/walstream/pkg/replication"
	"github.com/walstream/walstream/pkg/sink"
	"github.com/walstream/walstream/pkg/snapshot"
)

// Action that an error asks for.
type Action int

const (
	// Stop: it needs a person, and says what to do. Unknown errors are Stop.
	Stop Action = iota
	// Retry: resume from durable state, the way every start goes.
	Retry
	// Wait: another instance is at work; be its standby.
	Wait
)

// Class of an error: what to do, and a short reason for metrics.
type Class struct {
	Action Action
	Reason string
}

// Classify is the one table from error to action. The first line that fits
// counts.
func Classify(err error) Class {
	for _, rule := range rules {
		if rule.fits(err) {
			return rule.Class
		}
	}
	return Class{Stop, unknown}
}

const unknown = "unknown"

var rules = []struct {
	Class
	fits func(error) bool
}{
	{Class{Stop, "unacknowledged"}, is(ErrUnacknowledged)}, // whatever the reason was
	{Class{Wait, "slot-busy"}, is(replication.ErrSlotBusy)},
	{Class{Wait, "fenced"}, is(sink.ErrFenced)},
	{Class{Retry, "paused"}, is(replication.ErrLapsed)},
	{Class{Stop, "paused-by-operator"}, is(ErrPaused)}, // only of a command: an instance waits
	{Class{Stop, "refused-start"}, as[*checkpoint.Refusal]},
	{Class{Stop, "other-history"}, is(checkpoint.ErrOtherHistory)},
	{Class{Stop, "replay"}, is(ErrReplayRuns)},
	{Class{Stop, "replay"}, is(ErrReplayBegun)},
	{Class{Stop, "replay"}, is(ErrReplayUncovered)},
	{Class{Stop, "checkpoint-format"}, is(checkpoint.ErrNewerFormat)},
	{Class{Stop, "checkpoint-unreadable"}, as[*sink.CheckpointError]},
	{Class{Stop, "publication-changed"}, is(ErrRowsChanged)},
	{Class{Stop, "publication-missing"}, is(replication.ErrPublicationMissing)},
	{Class{Stop, "slot-lost"}, is(replication.ErrSlotLost)},
	{Class{Stop, "wal-removed"}, is(replication.ErrWALRemoved)},
	{Class{Stop, "synchronous-standby"}, is(replication.ErrSynchronousStandby)},
	{Class{Stop, "slot-unusable"}, is(replication.ErrSlotUnusable)},
	{Class{Stop, "rights"}, is(replication.ErrMissingRight)},
	{Class{Stop, "preflight"}, as[*replication.PreflightError]},
	{Class{Stop, "undecodable"}, as[*decode.Error]},
	{Class{Stop, "encoding"}, is(replication.ErrEncoding)},
	{Class{Retry, "type-changed"}, is(outbox.ErrTextNeeded)},
	{Class{Stop, "mapping"}, as[*outbox.ColumnError]},
	{Class{Stop, "snapshot"}, as[*snapshot.TableError]},
	{Class{Retry, "recovery"}, is(snapshot.ErrNoRoom)},
	{Class{Stop, "bad-row"}, as[*outbox.RowError]},
	{Class{Stop, "refused-record"}, as[*sink.DeliveryError]},
	{Class{Stop, "access"}, as[*sink.AccessError]},
	{Class{Stop, "kafka-setup"}, as[*sink.SetupError]},
	{Class{Retry, "schema-registry"}, is(sink.ErrRegistry)},
	{Class{Retry, "server-stopping"}, is(replication.ErrServerStopping)},
	{Class{Retry, "promoted"}, is(replication.ErrPromoted)},
	{Class{Retry, "silent"}, is(replication.ErrSilent)},
	{Class{Stop, "authentication"}, is(replication.ErrAuthentication)},
	{Class{Stop, "no-database"}, is(replication.ErrNoDatabase)},
	{Class{Stop, "pooler"}, is(replication.ErrPooler)},
	{Class{Stop, "postgres-tls"}, is(replication.ErrTLS)},
	{Class{Stop, "postgres-address"}, is(replication.ErrAddress)},
	{Class{Retry, "credentials"}, is(replication.ErrCredentials)},
	{Class{Retry, "postgres"}, replication.Transient},
	{Class{Retry, "isolating"}, is(sink.ErrSentAgain)},
	{Class{Retry, "kafka"}, sink.Retriable},
	{Class{Retry, "timeout"}, is(context.DeadlineExceeded)},
}

func is(target error) func(error) bool {
	return func(err error) bool { return errors.Is(err, target) }
}

func as[T error](err error) bool {
	_, ok := errors.AsType[T](err)
	return ok
}
