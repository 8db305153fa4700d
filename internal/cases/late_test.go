package cases

import (
	"fmt"
	"testing"
	"time"

	"github.com/walstream/walstream/internal/testenv"
)

// The slot was there before the publication: the server cannot decode what was
// written in between, at any try, or leaves it out, as its release is. Either way it
// is told apart, ends, and has a way on that says which rows it leaves out.
func TestC24PublicationMadeAfterTheSlot(t *testing.T) {
	t.Parallel()
	for _, major := range testenv.Majors() {
		t.Run(fmt.Sprintf("PostgreSQL %d", major), func(t *testing.T) {
			r := newRig(t, testenv.SharedPostgres(t, major), testenv.SharedKafka(t).Brokers)
			r.delivery = exactlyOnce
			r.exec(createSlot, r.slot)
			r.put(5)
			r.refused(r.start(), 3, r.publication(), "it is not there, but slot "+r.slot+" is")
			r.exec(`CREATE PUBLICATION ` + r.publication() + ` FOR TABLE bank_outbox (id, aggregate_id, payload, headers) WITH (publish = 'insert', publish_via_partition_root)`)
			r.put(2)
			message := r.refused(r.start(), 4, "Kafka holds no checkpoint", r.slot, "--adopt-slot=")
			args := r.flags(message)
			for range 2 { // it does not pass by itself
				message = r.refused(r.start(args...), 4, "the publication did not exist when changes in the WAL were made",
					"--accept-publication=", "pg_replication_slot_advance")
				args = nil
			}
			want := 2
			if major >= 18 {
				args = r.flags(message)
				want += 2 // written with the publication there
			} else {
				r.slotFree(10 * time.Second)
				r.takeSQL(message)
				args = r.flags(r.refused(r.start(), 4, "ahead of the checkpoint", "--accept-gap="))
			}
			s := r.stream(args...)
			r.put(2)
			r.untilConfirmed()
			r.check(s.Stop(20 * time.Second))
			r.markersWritten(r.topic)
			if n := len(r.published()); n != want {
				t.Errorf("%d records, want %d", n, want)
			}
		})
	}
}
