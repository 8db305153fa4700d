package audit

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
)

func TestTable(t *testing.T) {
	r := &Result{
		Verdict: Difference, Pipeline: "bank.bank_outbox_slot", Delivery: "at-least-once", Range: "ids from 7 on",
		Topics: []TopicRead{{Topic: "events", Partitions: 6, Records: 1_000_123}, {Topic: "none", Missing: true}},
		Rows:   1_000_001, Found: 1_000_000, Records: 1_000_000, Missing: 1, Duplicates: 123, DuplicatesAllowed: 120, WithoutRow: 9,
		Examples: []string{"missing: public.outbox, row 7"}, Notes: []string{"a note"},
	}
	const want = `audit of pipeline bank.bank_outbox_slot (at-least-once)

  topic events: 6 partitions, 1,000,123 records
  topic none does not exist

  rows                           1,000,001   ids from 7 on
  found                          1,000,000

  missing                                1
  duplicates                           123   120 of them explained by restarts in at-least-once delivery
  reordered                              0
  torn transactions                      0
  altered                                0

  events in the topics           1,000,000
  no longer in the table                 9   events whose row was deleted: not wrong

  - missing: public.outbox, row 7

  - a note

difference: the topics are not what the table says
`
	if got := r.Table(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	line, err := r.JSON()
	if err != nil || strings.Contains(string(line), "\n") {
		t.Fatalf("%s %v", line, err)
	}
	var back map[string]any
	if err := json.Unmarshal(line, &back); err != nil || back["verdict"] != "difference" || back["missing"] != 1.0 || back["covered_lsn"] != "0/0" {
		t.Errorf("%v %v", back, err)
	}
}

func TestRangeText(t *testing.T) {
	at := time.Date(2026, 11, 30, 1, 2, 3, 0, time.FixedZone("", 3600))
	for want, c := range map[string]Config{
		"all rows":                 {},
		"ids 1 to 2":               {FromID: "1", ToID: "2"},
		"ids up to 2":              {ToID: "2"},
		"commit LSNs from 0/10 on": {FromLSN: 16},
		"times from 2026-11-30T00:02:03Z on, commit LSNs 0/1 to 0/2": {FromTime: at, FromLSN: 1, ToLSN: 2},
	} {
		if got := c.rangeText(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
