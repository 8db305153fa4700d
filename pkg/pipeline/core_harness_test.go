package pipeline

import (
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/walstream/walstream/pkg/checkpoint"
	"github.com/walstream/walstream/pkg/decode"
	"github.com/walstream/walstream/pkg/decode/decodetest"
	"github.com/walstream/walstream/pkg/outbox"
)

// What the scripts and the simulation share: two tables, a mapper, and the bytes
// a walsender makes of a transaction.

// midnight is when every test's clock starts.
var midnight = time.Date(2026, 11, 30, 0, 0, 0, 0, time.UTC)

var (
	outboxTable = decode.Relation{
		ID: 1, Namespace: "public", Name: "outbox", ReplicaIdentity: 'd',
		Columns: []decode.Column{{Name: "key", TypeOID: 25, TypeMod: -1}, {Name: "value", TypeOID: 25, TypeMod: -1}},
	}
	otherTable = decode.Relation{
		ID: 2, Namespace: "public", Name: "other", ReplicaIdentity: 'd',
		Columns: []decode.Column{{Name: "x", TypeOID: 25, TypeMod: -1}},
	}
)

var errUnmappable = errors.New("row cannot become a record")

// keyValueMapper maps rows of the outbox table as they are, and fails on the
// value "unmappable".
type keyValueMapper struct{}

func (keyValueMapper) Map(row *decode.Row, event *outbox.Event) (ok bool, err error) {
	if row.Relation.Name != outboxTable.Name {
		return false, nil
	}
	if string(row.Values[1].Data) == "unmappable" {
		return false, fmt.Errorf("%w: %s", errUnmappable, row.Position)
	}
	*event = outbox.Event{
		Topic: "events", Key: row.Values[0].Data, Value: row.Values[1].Data,
		Partition: -1, Timestamp: row.Begin.CommitTime, Position: row.Position,
	}
	if err := badRow(event); err != nil {
		return false, err
	}
	return true, nil
}

func insertFrame(lsn pglogrepl.LSN, at time.Time, key, value string) []byte {
	return decodetest.XLogData(lsn, at, decodetest.Insert(outboxTable.ID, decodetest.Text(key), decodetest.Text(value)))
}

func relationFrame(at time.Time, r decode.Relation) []byte {
	return decodetest.XLogData(0, at, decodetest.Relation(r))
}

// beginFrame names the transaction's first change, as the server does.
func beginFrame(first pglogrepl.LSN, at time.Time, b decode.Begin) []byte {
	return decodetest.XLogData(first, at, decodetest.Begin(b))
}

func commitFrame(at time.Time, c decode.Commit) []byte {
	return decodetest.XLogData(c.EndLSN, at, decodetest.Commit(c))
}

// neverReady is the Ready of a sink that is drained by hand.
var neverReady = make(chan struct{})

// submitted is an event that waits for Kafka's answer.
type submitted struct {
	key, value string
	position   decode.Position
	ticket     checkpoint.Ticket
}

func submittedOf(e *outbox.Event, t checkpoint.Ticket) submitted {
	return submitted{key: string(e.Key), value: string(e.Value), position: e.Position, ticket: t}
}
