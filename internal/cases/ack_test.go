package cases

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/walstream/walstream/internal/service"
	"github.com/walstream/walstream/internal/testenv"
)

// The plain way: rows arrive once, in order, and the slot follows; a clean stop
// leaves nothing to send again.
func TestStreamStopStart(t *testing.T) {
	t.Parallel()
	for _, major := range testenv.Majors() {
		t.Run(fmt.Sprintf("PostgreSQL %d", major), func(t *testing.T) {
			inBoth(t, func(t *testing.T) {
				testStreamStopStart(t, newRig(t, testenv.SharedPostgres(t, major), testenv.SharedKafka(t).Brokers))
			})
		})
	}
}

func testStreamStopStart(t *testing.T, r *rig) {
	first := r.stream()
	r.put(100)
	r.untilConfirmed()
	r.check(first.Stop(10 * time.Second))
	r.put(50)
	second := r.stream()
	r.untilConfirmed()
	r.check(second.Stop(10 * time.Second))
	if duplicates := r.verify(); duplicates != 0 {
		t.Errorf("%d duplicates after a clean stop", duplicates)
	}
}

// notBeyond fails when the slot has confirmed lsn or more: the end of a commit
// with a row that Kafka has not acknowledged.
func (r *rig) notBeyond(lsn pglogrepl.LSN) {
	r.t.Helper()
	if confirmed, _ := r.confirmed(); confirmed >= lsn {
		r.t.Errorf("confirmed %s, though the row committed before %s is not acknowledged", confirmed, lsn)
	}
}

func TestC01KeepaliveBehindARowInFlight(t *testing.T) { inBothAtOnce(t, keepaliveBehindARowInFlight) }

func keepaliveBehindARowInFlight(t *testing.T) {
	r, proxy := proxiedRig(t, testenv.SharedPostgres(t, 0))
	s := r.warm()
	proxy.SwallowAnswers()
	r.put(1)
	end := r.walEnd()
	r.during(scaled(60*time.Second), func() {
		r.wal(5000)
		r.notBeyond(end)
	})
	s.Kill()
	r.notBeyond(end)
	proxy.Restore()
	r.stream()
	r.untilConfirmed()
	r.verify()
}

func TestC01RowThatCannotBecomeARecord(t *testing.T) { inBothAtOnce(t, rowThatCannotBecomeARecord) }

func rowThatCannotBecomeARecord(t *testing.T) {
	r := sharedRig(t)
	s := r.warm()
	r.exec(`INSERT INTO bank_outbox (aggregate_type, aggregate_id, event_type, payload, headers) VALUES ('account', 'a', 'x', '{}', '[]')`)
	end := r.walEnd()
	if code := r.ends(s, 20*time.Second); code != 6 {
		t.Errorf("exit code %d, want 6\n%s", code, s.Log())
	}
	r.wal(1000)
	r.notBeyond(end)
	again := r.start()
	if code := r.ends(again, 20*time.Second); code != 6 {
		t.Errorf("exit code %d at the next start, want 6\n%s", code, again.Log())
	}
	r.notBeyond(end)
	r.put(3)
	r.stream("--headers-column", "payload") // the way out
	r.untilConfirmed()
	r.verify()
}

func TestC03KillInsideALargeTransaction(t *testing.T) { inBothAtOnce(t, killInsideALargeTransaction) }

func killInsideALargeTransaction(t *testing.T) {
	r := sharedRig(t)
	rows, kills := 10000, 3
	if full() {
		rows, kills = 50000, 10
	}
	rng := rand.New(rand.NewPCG(3, 3))
	for range kills {
		s := r.warm("--max-in-flight-bytes", "256KiB")
		before, _ := s.Status(r.ctx)
		r.put(rows)
		end := r.walEnd()
		want := before.Events + uint64(1+rng.IntN(rows-1))
		_, err := s.WaitFor(r.ctx, fmt.Sprintf("at %d events", want), func(st service.Status) bool { return st.Events >= want })
		r.check(err)
		s.Kill()
		// It may have been done by the time it was killed: then the position is right.
		if confirmed, _ := r.confirmed(); confirmed >= end && len(r.published()) < rows {
			t.Errorf("confirmed %s with rows of the transaction unpublished", confirmed)
		}
	}
	r.stream()
	r.untilConfirmed()
	r.verify()
}

func TestC05CommitsInAnotherOrderThanBegins(t *testing.T) {
	inBothAtOnce(t, commitsInAnotherOrderThanBegins)
}

func commitsInAnotherOrderThanBegins(t *testing.T) {
	for _, down := range []bool{false, true} {
		t.Run(fmt.Sprintf("committed while down=%t", down), func(t *testing.T) {
			r := sharedRig(t)
			s := r.warm()
			late := r.connect()
			_, err := late.Exec(r.ctx, "BEGIN")
			r.check(err)
			r.putOn(late, 1000)
			for range 100 {
				r.put(1)
			}
			r.untilConfirmed()
			if down {
				s.Kill()
			}
			_, err = late.Exec(r.ctx, "COMMIT")
			r.check(err)
			if !down {
				s.Kill()
			}
			r.put(1)
			r.stream()
			r.untilConfirmed()
			r.verify()
		})
	}
}

// The leader of one topic is down, the other's is not: the position stays before
// the oldest row that is not acknowledged.
func TestC06ContiguousEdge(t *testing.T) { inBoth(t, contiguousEdge) }

func contiguousEdge(t *testing.T) {
	kafka := threeBrokers(t)
	r := newRig(t, testenv.SharedPostgres(t, 0), kafka.Brokers)
	stuck, healthy := r.topic+"_stuck", r.topic
	for _, topic := range []string{stuck, healthy} {
		_, err := r.admin.CreateTopics(r.ctx, 1, 1, nil, topic)
		r.check(err)
	}
	node := r.moveApart(stuck, healthy)
	insert := `INSERT INTO bank_outbox (aggregate_type, aggregate_id, event_type, payload) VALUES ($1, 'k', 'x', '{}')`
	args := []string{"--topic", unset, "--topic-column", "aggregate_type", "--create-topics", unset, "--topic-partitions", unset}
	s := r.stream(args...)
	r.exec(insert, healthy)
	r.exec(insert, stuck)
	r.untilConfirmed()
	// In good order: a broker that was killed is no longer trusted with the only
	// copy (KIP-966), and its partition waits for a person.
	r.check(kafka.Stop(node))
	var end pglogrepl.LSN
	for i := range 50 {
		r.exec(insert, stuck)
		if i == 0 {
			end = r.walEnd()
		}
		r.exec(insert, healthy)
	}
	if r.delivery == atLeastOnce { // in exactly-once nothing of their Kafka transaction is visible
		r.until("the healthy topic to have its rows", func() bool { return len(r.published()) == 51 })
	}
	r.during(scaled(60*time.Second), func() { r.notBeyond(end) })
	s.Kill()
	r.notBeyond(end)
	r.check(kafka.Start(r.ctx, node))
	r.stream(args...)
	r.untilConfirmed()
	if got := len(readTopic(t, r.ctx, r.brokers, stuck)); got != 51 {
		t.Errorf("%d records in the topic that was stuck, want 51", got)
	}
}

// moveApart sees that two topics of one partition are led by different brokers
// and returns the index of the first one's.
func (r *rig) moveApart(first, second string) int {
	r.t.Helper()
	var ids []int32
	brokers, err := r.admin.ListBrokers(r.ctx)
	r.check(err)
	ids = brokers.NodeIDs()
	slices.Sort(ids)
	var move kadm.AlterPartitionAssignmentsReq
	move.Assign(first, 0, []int32{ids[1]})
	move.Assign(second, 0, []int32{ids[0]})
	_, err = r.admin.AlterPartitionAssignments(r.ctx, move)
	r.check(err)
	r.until("the topics to be led apart", func() bool {
		topics, err := r.admin.ListTopics(r.ctx, first, second)
		return err == nil && topics[first].Partitions[0].Leader == ids[1] && topics[second].Partitions[0].Leader == ids[0]
	})
	return 1
}

func TestC07CleanStopConfirmsTheLastAcknowledgements(t *testing.T) {
	inBothAtOnce(t, cleanStopConfirmsTheLastAcknowledgements)
}

func cleanStopConfirmsTheLastAcknowledgements(t *testing.T) {
	r := sharedRig(t)
	s := r.warm()
	r.markersWritten(r.topic)
	before := len(r.published())
	r.put(100)
	end := r.walEnd()
	r.until("100 records", func() bool { return len(r.published()) == before+100 })
	r.check(s.Stop(10 * time.Second))
	if confirmed, _ := r.confirmed(); confirmed < end {
		t.Errorf("confirmed %s after a clean stop, want %s or more", confirmed, end)
	}
	again := r.stream()
	r.put(1)
	r.untilConfirmed()
	status, err := again.WaitFor(r.ctx, "through the new row", func(st service.Status) bool { return st.Events > 0 })
	r.check(err)
	if status.Events != 1 {
		t.Errorf("%d events after the restart, want the new one only", status.Events)
	}
	if duplicates := r.verify(); duplicates != 0 {
		t.Errorf("%d duplicates", duplicates)
	}
}
