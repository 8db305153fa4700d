package sink

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/walstream/walstream/pkg/outbox"
)

// The limit of a topic is one of the batch as it is sent. A row at the limit that
// cannot be compressed is taken, one byte more is refused before it is sent, many
// small rows never make a batch that is too large, and a row that fits when it is
// compressed alone is published.
func TestSizeLimitWithEachCompression(t *testing.T) {
	t.Parallel()
	const limit = 20_000
	everySink(t, func(t *testing.T, start starter) {
		everyBroker(t, func(t *testing.T, brokers []string) {
			for compression := range compressions {
				t.Run(compression, func(t *testing.T) {
					topic := createTopic(t, brokers, 1, map[string]string{"max.message.bytes": fmt.Sprint(limit)})
					cfg := testConfig(t, brokers)
					cfg.Compression = compression
					r := start(t, cfg)
					want := []int{300, 300, limit - 1, limit}
					for n, size := range want { // from the first answer on each client knows how batches are framed
						r.transaction(sized(topic, size, n))
						r.untilConfirmed()
					}
					for n := range 500 { // each a batch's worth of what fits
						r.transaction(sized(topic, 300, len(want)+n))
					}
					r.untilConfirmed()
					r.transaction(sized(topic, limit+1, 1000))
					err := r.untilError()
					if !as[*DeliveryError](err) {
						t.Fatalf("reported %v", err)
					}
					mustContain(t, err, "max.message.bytes of 20000", `row "1000"`)
					if got := len(seen(t, brokers, topic)); got != len(want)+500 {
						t.Errorf("%d records, want %d", got, len(want)+500)
					}
					r.close()
					cfg.Seen = NewSeen()
					packed := []*outbox.Event{sized(topic, 300, 0), event(topic, "k", strings.Repeat("x", 5*limit), 1)}
					for n := range 300 {
						packed = append(packed, sized(topic, 300, 2+n))
					}
					starts, err := persist(t, start, cfg, single(packed)...)
					if compression == "none" {
						if !as[*DeliveryError](err) || starts != 1 {
							t.Errorf("%d starts: %v", starts, err)
						}
						return
					}
					if err != nil || starts != 2 { // the client learns its limits once
						t.Errorf("%d starts: %v", starts, err)
					}
					if got := len(firsts(values(seen(t, brokers, topic)))); got != len(want)+500+len(packed) {
						t.Errorf("%d different records, want %d", got, len(want)+500+len(packed))
					}
				})
			}
		})
	})
}

// sized is a row of so many bytes, alone in a batch, of which no compression makes
// less.
func sized(topic string, size, n int) *outbox.Event {
	e := event(topic, "k", "", n)
	noise := make([]byte, size)
	_, _ = rand.Read(noise) // never fails
	noise = slices.Concat(noise, []byte(hex.EncodeToString(noise)))
	for e.Value = noise[:size/2]; recordSize(e) < size; {
		e.Value = noise[:len(e.Value)+1]
	}
	return e
}
