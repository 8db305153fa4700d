package replay

import (
	"strings"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/walstream/walstream/pkg/history"
)

func lsn(n pglogrepl.LSN) *pglogrepl.LSN { return &n }

var noon = time.Date(2026, 3, 1, 12, 0, 0, 500_000, time.UTC)

func TestRequests(t *testing.T) {
	for _, c := range []struct {
		q    Request
		says string // empty: it is fine
	}{
		{Request{FromLSN: lsn(0)}, ""},
		{Request{FromLSN: lsn(7), ToLSN: lsn(7), Source: WAL}, ""},
		{Request{FromTime: noon, ToTime: noon}, ""},
		{Request{FromID: "-5", ToID: "-5"}, ""},
		{Request{FromID: "5", ToTime: noon}, ""},
		{Request{}, "is required"},
		{Request{ToLSN: lsn(7)}, "is required"},
		{Request{ToTime: noon}, "is required"},
		{Request{FromID: "5", ToLSN: lsn(7)}, "--to-lsn wants --from-lsn"},
		{Request{FromLSN: lsn(7), FromID: "5"}, "choose one"},
		{Request{FromLSN: lsn(7), FromTime: noon}, "choose one"},
		{Request{FromLSN: lsn(7), ToID: "5"}, "goes with --to-lsn only"},
		{Request{FromLSN: lsn(7), ToLSN: lsn(6)}, "lies before"},
		{Request{FromTime: noon, ToTime: noon.Add(-time.Second)}, "lies before"},
		{Request{FromID: "10", ToID: "9"}, "lies before"},
		{Request{FromID: "x"}, "is no integer"},
		{Request{FromID: "5", Source: WAL}, "wal takes --from-lsn"},
	} {
		err := c.q.Check()
		if (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%+v: %v, want %q", c.q, err, c.says)
		}
	}
}

func TestBoundsOfTables(t *testing.T) {
	numbered := table{schema: "public", name: "outbox", id: "id", numbered: true, idType: "bigint", time: "created_at", byKey: true}
	uuid := table{schema: "public", name: "outbox", id: "id", idType: "uuid", time: `made "at"`}
	neither := table{schema: "public", name: "outbox", id: "id", idType: "uuid"}
	for _, c := range []struct {
		name         string
		table        table
		q            Request
		where, order string
		says         string
	}{
		{"ids", numbered, Request{FromID: "5", ToID: "9"}, `"id" >= '5' AND "id" <= '9'`, "", ""},
		{"id and time", numbered, Request{FromID: "5", ToTime: noon}, `"id" >= '5' AND "created_at" <= '2026-03-01 12:00:00.0005+00'`, "", ""},
		{"a key without order", uuid, Request{FromTime: noon}, `"made ""at""" >= '2026-03-01 12:00:00.0005+00'`, `made "at"`, ""},
		{"ids without order", uuid, Request{FromID: "5"}, "", "", "ids without an order (column id, uuid)"},
		{"no time", neither, Request{FromTime: noon}, "", "", "no column created_at"},
	} {
		where, order, err := c.table.bounds(&c.q)
		if (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) || where != c.where || order != c.order {
			t.Errorf("%s: %q by %q, %v", c.name, where, order, err)
		}
	}
}

func TestBoundsOfHistory(t *testing.T) {
	numbered := table{schema: "public", name: "outbox", key: []string{"id"}, id: "id", numbered: true, byKey: true}
	timed := table{schema: "public", name: "outbox", id: "id", idType: "uuid", time: "created_at"}
	ids, times := history.Bound{HasIDs: true, Least: -3, Greatest: 12}, history.Bound{HasTimes: true, Created: noon}
	for _, c := range []struct {
		name    string
		table   table
		bound   history.Bound
		bounded bool
		where   string // empty: refused
	}{
		{"from an id on", numbered, ids, false, `"id" >= -3`},
		{"and up to one", numbered, ids, true, `"id" >= -3 AND "id" <= 12`},
		{"by time", timed, times, true, `"created_at" >= '2026-03-01 12:00:00.0005+00'`},
		{"ids that history does not know", timed, history.Bound{}, false, ""},
		{"times of a table that has none", table{id: "id", idType: "uuid"}, times, false, ""},
	} {
		where, _, err := c.table.boundsOf(&c.bound, c.bounded)
		if where != c.where || (err == nil) != (c.where != "") {
			t.Errorf("%s: %q, %v", c.name, where, err)
		}
	}
}

// A range that ends leaves out the buckets that begin behind it, and no other.
func TestUpTo(t *testing.T) {
	buckets := []history.Bucket{{From: 10, To: 20}, {From: 20, To: 30}, {From: 30, To: 40}}
	for _, c := range []struct {
		to   *pglogrepl.LSN
		want int
	}{{nil, 3}, {lsn(9), 0}, {lsn(10), 1}, {lsn(19), 1}, {lsn(20), 2}, {lsn(29), 2}, {lsn(30), 3}, {lsn(99), 3}} {
		if got := upTo(buckets, c.to); len(got) != c.want {
			t.Errorf("%v: %d buckets, want %d", c.to, len(got), c.want)
		}
	}
}
