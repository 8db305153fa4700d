package cases

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/walstream/walstream/internal/service"
	"github.com/walstream/walstream/internal/testenv"
)

// replayReport is what walstream replay --json prints.
type replayReport struct {
	ID, Source, Covers string
	Rows               int
	Bad                int `json:"bad_rows"`
	Topics             map[string]int
	Least              *int64 `json:"least_id"`
	Greatest           *int64 `json:"greatest_id"`
	Done, Resumed      bool
	Notes              []string
	Request            string
	First              string `json:"first_commit_lsn"`
	Last               string `json:"last_commit_lsn"`
}

// replay runs walstream replay to its end.
func (r *rig) replay(args []string, extra ...string) (report replayReport, out string, code int) {
	r.t.Helper()
	out, code = r.command(append([]string{"replay", "--yes", "--json"}, args...), extra...)
	for line := range strings.Lines(out) {
		if strings.HasPrefix(line, `{"id"`) {
			r.check(json.Unmarshal([]byte(line), &report))
		}
	}
	return report, out, code
}

// replayed wants so many rows from a complete replay.
func (r *rig) replayed(want int, args []string, extra ...string) replayReport {
	r.t.Helper()
	report, out, code := r.replay(args, extra...)
	if code != 0 || !report.Done || report.Rows != want {
		r.t.Fatalf("replay %v: exit code %d, want %d rows\n%s", args, code, want, out)
	}
	return report
}

// marked are the records of a topic that a replay wrote, all or those of one.
func (r *rig) marked(topic, id string) (records []*kgo.Record) {
	r.t.Helper()
	r.markersWritten(topic)
	for _, rec := range readTopic(r.t, r.ctx, r.brokers, topic) {
		if by := header(rec, "walstream-replay"); by != "" && (id == "" || by == id) {
			records = append(records, rec)
		}
	}
	return records
}

// sameAs holds replayed records against the originals, by event id: key, value and
// headers are the same but for the position and the mark; none is there twice.
func (r *rig) sameAs(originals, records []*kgo.Record) {
	r.t.Helper()
	first := map[string]*kgo.Record{}
	for _, rec := range originals {
		if header(rec, "walstream-replay") == "" {
			first[header(rec, "walstream-event-id")] = rec
		}
	}
	seen := map[string]bool{}
	for _, rec := range records {
		id := header(rec, "walstream-event-id")
		was := first[id]
		if was == nil || seen[id] {
			r.t.Fatalf("record of event %s: its original %v, seen before %v", id, was, seen[id])
		}
		seen[id] = true
		if string(was.Key) != string(rec.Key) || string(was.Value) != string(rec.Value) || len(rec.Headers) != len(was.Headers)+1 {
			r.t.Errorf("event %s is not what it was:\n%v\n%v", id, was, rec)
		}
	}
}

var seqID = []string{"--id-column", "seq"}

func with(a []string, b ...string) []string { return append(append([]string(nil), a...), b...) }

// Rows of a range of ids or times are published once more, to the same topics and to
// others, beside a pipeline that streams; what it cannot do it refuses.
func TestC15ReplayOfTheTable(t *testing.T) {
	t.Parallel()
	inBoth(t, func(t *testing.T) {
		r := sharedRig(t)
		r.stream(seqID...)
		r.put(300)
		r.put(1) // 301
		var at string
		r.check(r.db.QueryRow(r.ctx, `SELECT to_char(created_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') FROM bank_outbox WHERE seq = 301`).Scan(&at))
		r.put(99)
		r.untilConfirmed()
		r.markersWritten(r.topic)
		originals := r.published()

		report := r.replayed(300, []string{"--from-id=101", "--to-topic-prefix=again."}, seqID...)
		if report.Source != "table" || *report.Least != 101 || *report.Greatest != 400 || report.Topics["again."+r.topic] != 300 {
			t.Errorf("%+v", report)
		}
		records := r.marked("again."+r.topic, report.ID)
		if len(records) != 300 {
			t.Errorf("%d records, want 300", len(records))
		}
		r.sameAs(originals, records)
		if n := len(r.published()); n != len(originals) {
			t.Errorf("%d records in the topic itself, want %d", n, len(originals))
		}

		report = r.replayed(11, []string{"--from-id=10", "--to-id=20"}, seqID...)
		r.sameAs(originals, r.marked(r.topic, report.ID))
		report = r.replayed(100, []string{"--from-time=" + at}, seqID...)
		r.sameAs(originals, r.marked(r.topic, report.ID))
		report = r.replayed(43, []string{"--from-id=1", "--to-id=300", "--only-key=acc-3", "--only-topic=" + r.topic}, seqID...)
		r.sameAs(originals, r.marked(r.topic, report.ID))

		dry, out, code := r.replay([]string{"--from-id=1", "--dry-run"}, seqID...)
		if code != 0 || dry.Rows != 400 || dry.Topics[r.topic] != 400 {
			t.Errorf("dry run: exit code %d, %+v\n%s", code, dry, out)
		}
		if n := len(r.marked(r.topic, dry.ID)); n != 0 {
			t.Errorf("a dry run wrote %d records", n)
		}
		r.put(5)
		r.untilConfirmed()
		if out, code := r.command([]string{"audit"}, seqID...); code != 0 || !strings.Contains(out, "replayed") {
			t.Errorf("audit: exit code %d\n%s", code, out)
		}
	})
}

// Per key, rows come in the order of their making, whatever the primary key is.
func TestReplayOfUnorderedKeys(t *testing.T) {
	t.Parallel()
	r := sharedRig(t)
	r.stream()
	r.put(400)
	r.untilConfirmed()
	report := r.replayed(400, []string{"--from-time=1h"})
	next := map[string]int{}
	for _, rec := range r.marked(r.topic, report.ID) {
		var value struct{ I int }
		r.check(json.Unmarshal(rec.Value, &value))
		if value.I <= next[string(rec.Key)] {
			t.Errorf("key %s: %d comes behind %d", rec.Key, value.I, next[string(rec.Key)])
		}
		next[string(rec.Key)] = value.I
	}
}

// A replay that is killed goes on where it was, each row once; with other arguments
// it is refused, and complete it says so.
func TestReplayIsResumed(t *testing.T) {
	t.Parallel()
	inBoth(t, func(t *testing.T) {
		r := sharedRig(t)
		live := r.stream(seqID...)
		r.put(6000)
		r.untilConfirmed()
		args := with(seqID, "--to-topic-prefix", "again.", "--from-id", "1", "--to-id", "6000", "--rate", "700")
		topic := "again." + r.topic
		for range 3 {
			s := r.startReplay(args...)
			before := len(r.replayTopic(topic))
			r.until("records", func() bool { return len(r.replayTopic(topic)) > before+200 })
			s.Kill()
		}
		_, out, code := r.replay([]string{"--from-id=2", "--to-topic-prefix=again."}, seqID...)
		if code != 3 || !strings.Contains(out, "--restart") || !strings.Contains(out, "--from-id=1") {
			t.Errorf("other arguments: exit code %d\n%s", code, out)
		}
		flags := []string{"--to-topic-prefix=again.", "--from-id=1", "--to-id=6000"}
		report := r.replayed(6000, flags, seqID...)
		if !report.Resumed || report.Topics[topic] != 6000 || *report.Least != 1 || *report.Greatest != 6000 {
			t.Errorf("%+v", report)
		}
		records, seen := r.marked(topic, ""), map[string]bool{}
		for _, rec := range records {
			seen[header(rec, "walstream-event-id")] = true
		}
		if len(seen) != 6000 || r.delivery == exactlyOnce && len(records) != 6000 {
			t.Errorf("%d rows in %d records, want 6000", len(seen), len(records))
		}
		again, out, code := r.replay(flags, seqID...)
		if code != 0 || !strings.Contains(out, "complete since before") || again.ID != report.ID || len(r.marked(topic, "")) != len(records) {
			t.Errorf("once more: exit code %d\n%s", code, out)
		}
		r.replayed(6000, with(flags, "--restart"), seqID...)
		if got := live.Log(); strings.Contains(got, "will start again") {
			t.Errorf("the pipeline was disturbed:\n%s", got)
		}
	})
}

// startReplay runs walstream replay; it is killed at the end of the test.
func (r *rig) startReplay(args ...string) *service.Service {
	r.t.Helper()
	s, err := service.Start(service.Options{Binary: r.binary, Args: append([]string{"replay", "--yes"}, r.args(args...)...)})
	r.check(err)
	r.t.Cleanup(func() {
		s.Kill()
		if r.t.Failed() {
			r.t.Logf("replay %d said:\n%s", s.PID(), s.Log())
		}
	})
	return s
}

// replayTopic is r.published for a topic that may not be there yet.
func (r *rig) replayTopic(topic string) []*kgo.Record {
	topics, err := r.admin.ListTopics(r.ctx, topic)
	r.check(err)
	if !topics.Has(topic) || topics[topic].Err != nil {
		return nil
	}
	return readTopic(r.t, r.ctx, r.brokers, topic)
}

// What cannot be replayed is named, with the way out, and nothing is sent.
func TestC15ReplayRefuses(t *testing.T) {
	t.Parallel()
	r := newRig(t, testenv.NewPostgres(t, testenv.PGOptions{}), testenv.SharedKafka(t).Brokers) // the WAL is its own
	r.stream()
	begin := r.lsn()
	r.put(100)
	r.untilConfirmed()
	acknowledged, _ := r.confirmed()
	for name, c := range map[string]struct {
		args  []string
		code  int
		says  string
		extra []string
	}{
		"no range":            {nil, 2, "from where on", nil},
		"malformed LSN":       {[]string{"--from-lsn=16/B374D848x"}, 2, "from-lsn", nil},
		"malformed time":      {[]string{"--from-time=yesterday"}, 2, "from-time", nil},
		"malformed id":        {[]string{"--from-id=1e3"}, 2, "no integer", nil},
		"range the wrong way": {[]string{"--from-id=3", "--to-id=2"}, 2, "lies before", nil},
		"beyond the WAL":      {[]string{"--from-lsn=FF/0"}, 3, "beyond the end of the server's WAL", nil},
		"0/0":                 {[]string{"--from-lsn=0/0"}, 3, "earliest LSN", nil},
		"1 MB behind":         {[]string{"--from-lsn=" + (acknowledged - 1<<20).String()}, 3, "history reaches back to", nil},
		"ids without order":   {[]string{"--from-id=1"}, 3, "ids without an order (column id, uuid)", nil},
		"uuid by LSN":         {[]string{"--from-lsn=" + begin}, 3, "ids without an order (column id, uuid)", nil},
		"no rewind slot":      {[]string{"--from-lsn=" + acknowledged.String(), "--source=wal"}, 3, "_rewind", nil},
		"no event id":         {[]string{"--from-time=1h"}, 3, "no event id", []string{"--id-column", unset}},
		"not confirmed":       {[]string{"--from-time=1h"}, 2, "not confirmed", nil},
	} {
		words := []string{"replay"}
		if name != "not confirmed" {
			words = append(words, "--yes")
		}
		out, code := r.command(append(words, c.args...), c.extra...)
		if code != c.code || !strings.Contains(out, c.says) {
			t.Errorf("%s: exit code %d, want %d and %q\n%s", name, code, c.code, c.says, out)
		}
	}
	if n := len(r.marked(r.topic, "")); n != 0 {
		t.Errorf("%d records were sent", n)
	}
}

// Beside a stream that goes on, the topics' live records stay as many and in order.
func TestReplayBesideTheStream(t *testing.T) {
	t.Parallel()
	inBoth(t, func(t *testing.T) {
		r := sharedRig(t)
		r.stream(seqID...)
		r.put(3000)
		done := make(chan struct{})
		conn := r.connect()
		go func() {
			defer close(done)
			for range 100 {
				r.putOn(conn, 10)
				time.Sleep(5 * time.Millisecond)
			}
		}()
		report := r.replayed(3000, []string{"--from-id=1", "--to-id=3000"}, seqID...)
		<-done
		r.untilConfirmed()
		r.markersWritten(r.topic)
		last, live := map[string]string{}, 0
		for _, rec := range r.published() {
			if header(rec, "walstream-replay") != "" {
				continue
			}
			live++
			key, position := string(rec.Key), header(rec, "walstream-position")
			if position <= last[key] {
				t.Errorf("key %s: position %s appears after %s", key, position, last[key])
			}
			last[key] = position
		}
		if replayed := len(r.marked(r.topic, report.ID)); live != 4000 || replayed != 3000 {
			t.Errorf("%d live records and %d replayed", live, replayed)
		}
	})
}

// lsn is where the WAL is written to.
func (r *rig) lsn() string {
	r.t.Helper()
	var text string
	r.check(r.db.QueryRow(r.ctx, `SELECT pg_current_wal_insert_lsn()::text`).Scan(&text))
	return text
}

// From an LSN: by a copy of the rewind slot, whole transactions and deleted rows too,
// at their own positions; from the table by what history knows; else refused, with
// the earliest LSN there is. A replay that is killed goes on.
func TestC15ReplayFromAnLSN(t *testing.T) {
	t.Parallel()
	inBoth(t, func(t *testing.T) {
		r := sharedRig(t)
		s := r.stream(seqID...)
		r.exec(`SELECT pg_create_logical_replication_slot($1, 'pgoutput')`, r.slot+"_rewind")
		r.put(50) // 1 to 50
		first := r.lsn()
		tx, err := r.db.Begin(r.ctx)
		r.check(err)
		_, err = tx.Exec(r.ctx, putSQL, 20) // 51 to 70
		r.check(err)
		inside := r.lsn()
		_, err = tx.Exec(r.ctx, putSQL, 30) // 71 to 100
		r.check(err)
		r.check(tx.Commit(r.ctx))
		second := r.lsn()
		r.put(900) // 101 to 1000
		r.untilConfirmed()
		r.markersWritten(r.topic)
		originals := r.published()
		r.exec(`DELETE FROM bank_outbox WHERE seq BETWEEN 60 AND 110`)
		topic := "again." + r.topic
		atPlace := func(report replayReport, want int) {
			t.Helper()
			places := map[string]string{}
			for _, rec := range originals {
				places[header(rec, "walstream-event-id")] = header(rec, "walstream-position")
			}
			records := r.marked(topic, report.ID)
			r.sameAs(originals, records)
			for _, rec := range records {
				if id := header(rec, "walstream-event-id"); places[id] != header(rec, "walstream-position") {
					t.Errorf("event %s at %s, it was at %s", id, header(rec, "walstream-position"), places[id])
				}
			}
			if len(records) != want || report.Source != "wal" {
				t.Errorf("%d records, want %d: %+v", len(records), want, report)
			}
		}
		atPlace(r.replayed(950, []string{"--from-lsn=" + first, "--to-topic-prefix=again."}, seqID...), 950)
		atPlace(r.replayed(50, []string{"--from-lsn=" + first, "--to-lsn=" + second, "--to-topic-prefix=again."}, seqID...), 50)
		atPlace(r.replayed(950, []string{"--from-lsn=" + inside, "--to-topic-prefix=again."}, seqID...), 950)
		atPlace(r.replayed(0, []string{"--from-lsn=" + r.walEnd().String(), "--to-topic-prefix=again."}, seqID...), 0)

		end := r.lsn()
		args := with(seqID, "--from-lsn", second, "--to-lsn", end, "--to-topic-prefix", "killed.", "--rate", "200")
		k := r.startReplay(args...)
		r.until("records", func() bool { return len(r.replayTopic("killed."+r.topic)) > 50 })
		k.Kill()
		report := r.replayed(900, []string{"--from-lsn=" + second, "--to-lsn=" + end, "--to-topic-prefix=killed."}, seqID...)
		if n := len(r.marked("killed."+r.topic, report.ID)); r.delivery == exactlyOnce && n != 900 || n < 900 || report.Topics["killed."+r.topic] != 900 {
			t.Errorf("%d records: %+v", n, report)
		}

		r.exec(`SELECT pg_replication_slot_advance($1, $2::text::pg_lsn)`, r.slot+"_rewind", second)
		if _, out, code := r.replay([]string{"--from-lsn=" + first, "--source=wal"}, seqID...); code != 3 || !strings.Contains(out, "the earliest LSN that the WAL can be replayed from is") {
			t.Errorf("a passed LSN: exit code %d\n%s", code, out)
		}
		report = r.replayed(949, []string{"--from-lsn=" + first, "--to-topic-prefix=again."}, seqID...) // one bucket of history
		if report.Source != "table" || !strings.Contains(report.Covers, "by history") || len(report.Notes) == 0 {
			t.Errorf("%+v", report)
		}
		if _, out, code := r.replay([]string{"--from-lsn=0/0"}, seqID...); code != 3 || !strings.Contains(out, "history reaches back to") || !strings.Contains(out, "nor from the WAL") {
			t.Errorf("0/0: exit code %d\n%s", code, out)
		}
		if strings.Contains(s.Log(), "will start again") {
			t.Errorf("the pipeline was disturbed:\n%s", s.Log())
		}
		if out, code := r.command([]string{"audit"}, seqID...); code != 0 {
			t.Errorf("audit: exit code %d\n%s", code, out)
		}
	})
}
