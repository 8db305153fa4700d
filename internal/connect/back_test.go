package connect

import (
	"encoding/json"
	"errors"
	"maps"
	"strings"
	"testing"
)

// Ways back to a connector whose stored offset is behind the slot, as
// docs/moving-from-debezium.md lists them. Whoever read the slot meanwhile does not
// matter to the connector: here it is SQL.
func TestWaysBack(t *testing.T) {
	const (
		fails = iota
		goesOn
		allAgain // the table once more
	)
	const beyond, unavailable = 6, "no longer available on the server"
	for name, c := range map[string]struct {
		settings map[string]string
		change   func(r *rig) error // of the stopped connector
		want     int
	}{
		"as_it_was":         {nil, nil, fails},
		"trust_offset":      {map[string]string{"offset.mismatch.strategy": "trust_offset"}, nil, fails},
		"trust_slot":        {map[string]string{"offset.mismatch.strategy": "trust_slot"}, nil, goesOn},
		"trust_greater_lsn": {map[string]string{"offset.mismatch.strategy": "trust_greater_lsn"}, nil, goesOn},
		"offset_deleted":    {nil, deleteOffset, goesOn},
		"offset_set":        {nil, setOffset, goesOn},
		"another_connector": {nil, otherName, goesOn},
		"snapshot_initial":  {map[string]string{"snapshot.mode": "initial"}, deleteOffset, allAgain},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, "back_"+name, "at-least-once")
			aggregate := strings.TrimPrefix(r.topic, "outbox.event.")
			put := func(n int) {
				r.exec(`INSERT INTO outboxevent (aggregatetype, aggregateid, type) SELECT $1, 'a', 'x' FROM generate_series(1, $2::int)`, aggregate, n)
			}
			r.startConnector()
			put(4)
			r.until("the connector's rows", func() bool { return len(r.records()) == 4 })
			r.check(r.worker.StopConnector(r.ctx, r.connector.Name))
			r.untilSlotFree()
			put(5) // read by somebody else
			r.untilRestartBeyondOffset(func() {
				r.exec(`SELECT count(*) FROM pg_logical_slot_get_binary_changes($1, NULL, NULL, 'proto_version', '1', 'publication_names', $2)`,
					r.connector.Slot, publicationOfConnector)
			})
			put(beyond)
			maps.Copy(r.connector.Settings, c.settings)
			if c.change != nil {
				r.check(c.change(r))
			}
			r.check(r.worker.Put(r.ctx, r.connector.Name, r.connector.Config()))
			r.check(r.worker.Resume(r.ctx, r.connector.Name))
			err := r.worker.WaitStreaming(r.ctx, r.connector)
			var failed *TaskFailed
			if c.want == fails {
				if !errors.As(err, &failed) || !strings.Contains(failed.Trace, unavailable) {
					t.Fatalf("want a failure, got %v", err)
				}
				return
			}
			r.check(err)
			put(1)
			want := 4 + beyond + 1
			if c.want == allAgain {
				want += 4 + 5 // and those that wait in the WAL come twice, by snapshot and stream
				r.until("the whole table", func() bool { return len(r.records()) >= want })
				return
			}
			r.until("the rows that waited", func() bool { return len(r.records()) >= want })
			r.check(r.worker.StopConnector(r.ctx, r.connector.Name)) // whatever else it has is sent now
			if got := len(r.records()); got != want {
				t.Errorf("%d records, want %d", got, want)
			}
		})
	}
}

func deleteOffset(r *rig) error { return r.worker.DeleteOffsets(r.ctx, r.connector.Name) }

// setOffset to where the slot is, a number there.
func setOffset(r *rig) error {
	offsets, err := r.worker.Offsets(r.ctx, r.connector.Name)
	if err != nil {
		return err
	}
	at := json.Number(r.text(`SELECT (confirmed_flush_lsn - '0/0'::pg_lsn)::text FROM pg_replication_slots WHERE slot_name = $1`, r.connector.Slot))
	offsets[0].Offset = map[string]any{"lsn": at, "lsn_commit": at, "lsn_proc": at}
	return r.worker.SetOffsets(r.ctx, r.connector.Name, offsets)
}

func otherName(r *rig) error {
	err := r.worker.Delete(r.ctx, r.connector.Name)
	r.connector.Name += "_anew"
	return err
}
