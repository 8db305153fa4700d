package outbox

import (
	"errors"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgtype"
)

// Of a row that cannot become a record, whatever is sound can be had: for a dead
// letter that may be published later.
func TestBadRowKeepsWhatIsSound(t *testing.T) {
	sound := []col{{"headers", pgtype.JSONBOID, `{"a":"b"}`}, {"payload", pgtype.TextOID, `{}`}}
	for name, c := range map[string]struct {
		broken    []col
		partition string // the column
		want      string
	}{
		"headers":   {[]col{{"headers", pgtype.JSONBOID, "[]"}}, "", `deposits|"k1"|"{}"|-1 event_type="deposited"`},
		"no topic":  {[]col{{"topic", pgtype.TextOID, nil}, {"aggregate_type", pgtype.TextOID, nil}}, "", `|"k1"|"{}"|-1 event_type="deposited" a="b"`},
		"partition": {[]col{{"id", pgtype.Int8OID, "-41"}}, "id", `deposits|"k1"|"{}"|-1 event_type="deposited" a="b"`},
		"value":     {[]col{{"payload", pgtype.ByteaOID, `no bytea`}}, "", `deposits|"k1"|"no bytea"|-1 event_type="deposited" a="b"`},
	} {
		t.Run(name, func(t *testing.T) {
			config := own()
			config.PartitionColumn = c.partition
			row := ownRow(append(sound, c.broken...)...)
			var e Event
			_, err := mustMapping(t, config).Map(row, &e)
			var bad *RowError
			if !errors.As(err, &bad) {
				t.Fatalf("got %v", err)
			}
			got := show(e)
			at := strings.Index(got, "|2026-")
			_, own, _ := strings.Cut(got[at:], "41")
			if got[:at]+own != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
			if !strings.HasSuffix(e.RowID, "41") || e.Position != row.Position || e.Table != "public.outbox" || len(e.Headers) < ownHeaders {
				t.Errorf("got %+v", e)
			}
		})
	}
}
