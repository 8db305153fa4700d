package cases

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"
	"time"
)

// Where the policy is to stop, the message names the culprit, and how to go past
// it; walstream skip does that and nothing else.
func TestC48SkipOneRow(t *testing.T) { inBothAtOnce(t, skipOneRow) }

func skipOneRow(t *testing.T) {
	r := sharedRig(t)
	args := r.makeYoungTopic()
	skip := func(words ...string) (out string, code int) {
		r.t.Helper()
		return r.command(append([]string{"skip"}, words...), args...)
	}
	s := r.warm(args...)
	if out, code := skip("--yes", "--position=0/1#1"); code != 3 || !strings.Contains(out, "another instance is at work") {
		t.Errorf("beside a healthy instance: exit code %d\n%s", code, out)
	}
	r.exec(putOld, 500, []int{300, 400})
	r.exec(`INSERT INTO bank_outbox (aggregate_type, aggregate_id, event_type, payload, headers) VALUES ('unmappable', 'a', 'x', '{"a":1}', '[]')`)
	r.put(100)
	if code := r.ends(s, 30*time.Second); code != 6 {
		t.Fatalf("exit code %d\n%s", code, s.Log())
	}
	first := positionIn(t, s.Log())
	if out, code := skip("--position", first); code != 2 || !strings.Contains(out, "not confirmed") {
		t.Errorf("unconfirmed: exit code %d\n%s", code, out)
	}
	if out, code := skip("--yes", "--position", strings.Split(first, "#")[0]+"#10"); code != 6 || !strings.Contains(out, first) {
		t.Errorf("another row: exit code %d\n%s", code, out)
	}
	out, code := skip("--yes", "--position", first)
	if code != 6 {
		t.Fatalf("exit code %d, and its transaction has two bad rows\n%s", code, out)
	}
	both := positionIn(t, out)
	if out, code = skip("--yes", "--position", both); code != 0 {
		t.Fatalf("exit code %d\n%s", code, out)
	}
	if out, code = skip("--yes", "--position", both); code != 2 || !strings.Contains(out, "published or passed already") {
		t.Errorf("again: exit code %d\n%s", code, out)
	}
	s = r.start(args...)
	if code := r.ends(s, 30*time.Second); code != 6 {
		t.Fatalf("exit code %d\n%s", code, s.Log())
	}
	third := positionIn(t, s.Log())
	// A row with nothing wrong beside it is said to be that; what was passed is not denied.
	sound := strings.Split(third, "#")[0] + "#77"
	if out, code = skip("--yes", "--dead-letter", "--position", third+","+sound); code != 0 ||
		!strings.Contains(out, "passed "+third+" (") || !strings.Contains(out, "nothing was wrong with the row at "+sound) {
		t.Fatalf("exit code %d\n%s", code, out)
	}
	r.stream(args...)
	r.untilConfirmed()
	isBad := r.badOf("aggregate_type IN ('old', 'unmappable')")
	r.verifyPoison("skip", isBad, r.topic)
	letters := r.letters()
	if len(letters) != 1 || string(letters[0].Value) != `{"a": 1}` || header(letters[0], "walstream-dead-letter-class") != "mapping" || header(letters[0], "walstream-dead-letter-by") == "" {
		t.Errorf("dead letters %v", letters)
	}
}

// positionIn a message is what it says to give to walstream skip.
func positionIn(t *testing.T, text string) string {
	t.Helper()
	at := strings.LastIndex(text, "--position '")
	if at < 0 {
		t.Fatalf("no position in\n%s", text)
	}
	position, _, _ := strings.Cut(text[at+len("--position '"):], "'")
	return position
}

// Dead letters are listed, shown, and published once they can be: a second retry
// finds it done.
func TestC48DeadLettersRetried(t *testing.T) { inBothAtOnce(t, deadLettersRetried) }

func deadLettersRetried(t *testing.T) {
	r := sharedRig(t)
	r.makeTopic(r.topic, 1)
	r.alter(r.topic, "max.message.bytes", "2000")
	if out, code := r.command([]string{"dead-letters", "list"}); code != 0 || !strings.Contains(out, "no dead letters") {
		t.Errorf("exit code %d\n%s", code, out)
	}
	s := r.warm("--on-poison", "dead-letter")
	for range 3 {
		r.exec(large, 3200)
		r.put(5)
	}
	r.untilConfirmed()
	out, code := r.command([]string{"dead-letters", "list"})
	if code != 0 || strings.Count(out, "too-large") != 3 || !strings.Contains(out, r.topic) {
		t.Fatalf("exit code %d\n%s", code, out)
	}
	if out, code = r.command([]string{"dead-letters", "list", "--json"}); code != 0 {
		t.Fatalf("exit code %d\n%s", code, out)
	}
	var ids []string
	for line := range strings.Lines(out) {
		var letter struct{ ID, Reason string }
		r.check(json.Unmarshal([]byte(line), &letter))
		ids = append(ids, letter.ID)
	}
	if out, code = r.command([]string{"dead-letters", "show", "--id", ids[1]}); code != 0 || !strings.Contains(out, "max.message.bytes of 2000") || len(out) < 3200 {
		t.Errorf("exit code %d\n%s", code, out)
	}
	if out, code = r.command([]string{"dead-letters", "retry", "--id", ids[0]}); code != 6 || !strings.Contains(out, "not published 1") {
		t.Errorf("still too large: exit code %d\n%s", code, out)
	}
	r.alter(r.topic, "max.message.bytes", "200000")
	if out, code = r.command([]string{"dead-letters", "retry", "--id", ids[0]}); code != 0 {
		t.Errorf("exit code %d\n%s", code, out)
	}
	if out, code = r.command([]string{"dead-letters", "retry", "--id", ids[0]}); code != 6 || !strings.Contains(out, "published before") {
		t.Errorf("a second time: exit code %d\n%s", code, out)
	}
	if out, code = r.command([]string{"dead-letters", "retry", "--all"}); code != 0 || !strings.Contains(out, "published 2, not published 0") {
		t.Errorf("the rest: exit code %d\n%s", code, out)
	}
	if out, code = r.command([]string{"dead-letters", "list"}); code != 0 || strings.Count(out, "published 20") != 3 {
		t.Errorf("exit code %d\n%s", code, out)
	}
	r.check(s.Stop(10 * time.Second))
	replayed := 0
	seen := map[string]int{}
	for _, rec := range r.published() {
		seen[header(rec, "walstream-event-id")]++
		if header(rec, "walstream-replay") == "dead-letter" {
			replayed++
			if header(rec, "walstream-dead-letter-reason") != "" || string(rec.Key) != "large" || len(rec.Value) < 3200 {
				t.Errorf("record %v", rec)
			}
		}
	}
	if replayed != 3 || len(seen) != 1+3*6 {
		t.Errorf("%d replayed, %d rows", replayed, len(seen))
	}
}

// A bad row at the end of a backlog costs nothing of the backlog: what lies before
// it is published before walstream stops, and the command of the message, followed
// to the letter, leaves out that row and no other.
func TestC01WayPastABadRowBehindABacklog(t *testing.T) { inBothAtOnce(t, wayPastBehindABacklog) }

func wayPastBehindABacklog(t *testing.T) {
	r := sharedRig(t)
	r.check(r.warm().Stop(10 * time.Second))
	for range 3 {
		r.put(10)
	}
	r.exec(`INSERT INTO bank_outbox (aggregate_type, aggregate_id, event_type, payload, headers) VALUES ('account', 'a', 'x', '{}', '[1]')`)
	r.put(1)
	s := r.start()
	if code := r.ends(s, 60*time.Second); code != 6 {
		t.Fatalf("exit code %d", code)
	}
	if n := len(r.published()); n != 31 {
		t.Errorf("%d rows are published, of 31 before the bad one", n)
	}
	advice := regexp.MustCompile(`walstream (skip) --slot (\S+) --position '([^']+)'`).FindStringSubmatch(s.Log())
	if advice == nil || advice[2] != r.slot {
		t.Fatalf("no way out in the message:\n%s", s.Log())
	}
	if out, code := r.command([]string{advice[1], "--yes", "--position", advice[3]}); code != 0 {
		t.Fatalf("%s: exit code %d\n%s", advice[0], code, out)
	}
	r.stream()
	r.untilConfirmed()
	r.verifyPoison("skip", r.badOf(`headers = '[1]'`), r.topic)
}
