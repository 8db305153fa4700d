package cases

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/walstream/walstream/internal/service"
)

// inEachPolicy that lets bad rows pass.
func inEachPolicy(t *testing.T, run func(t *testing.T, policy string)) {
	t.Helper()
	for _, policy := range []string{"skip", "dead-letter"} {
		t.Run(policy, func(t *testing.T) { run(t, policy) })
	}
}

func (r *rig) letters() []*kgo.Record {
	r.t.Helper()
	return readTopic(r.t, r.ctx, r.brokers, "walstream.dead-letters."+r.pipeline)
}

// command runs walstream for the rig's settings and returns what it printed.
func (r *rig) command(words []string, extra ...string) (out string, code int) {
	r.t.Helper()
	cmd := exec.CommandContext(r.ctx, r.binary, append(words, r.args(extra...)...)...)
	text, err := cmd.CombinedOutput()
	if _, ended := errors.AsType[*exec.ExitError](err); err != nil && !ended {
		r.t.Fatal(err)
	}
	return string(text), cmd.ProcessState.ExitCode()
}

// verifyPoison holds table, topics and dead letters together: each row is in one of
// them, once; those that want says are bad are not in a topic.
func (r *rig) verifyPoison(policy string, bad map[string]bool, topics ...string) {
	r.t.Helper()
	rows, err := r.db.Query(r.ctx, `SELECT id::text FROM bank_outbox ORDER BY seq`)
	r.check(err)
	var ids []string
	for rows.Next() {
		var id string
		r.check(rows.Scan(&id))
		ids = append(ids, id)
	}
	r.check(rows.Err())
	published, buried := map[string]int{}, map[string]int{}
	last := map[string]string{}
	for _, topic := range topics {
		r.markersWritten(topic)
		for _, rec := range readTopic(r.t, r.ctx, r.brokers, topic) {
			id, position := header(rec, "walstream-event-id"), header(rec, "walstream-position")
			if published[id]++; published[id] > 1 {
				continue
			}
			if place := topic + " " + string(rec.Key); position <= last[place] {
				r.t.Errorf("%s: %s first appears after %s", place, position, last[place])
			} else {
				last[place] = position
			}
		}
	}
	if policy == "dead-letter" {
		r.markersWritten("walstream.dead-letters." + r.pipeline)
		for _, rec := range r.letters() {
			buried[header(rec, "walstream-event-id")]++
		}
	}
	for _, id := range ids {
		switch p, d := published[id], buried[id]; {
		case bad[id] && p > 0:
			r.t.Errorf("bad row %s was published", id)
		case bad[id] && policy == "dead-letter" && d == 0:
			r.t.Errorf("bad row %s is no dead letter", id)
		case !bad[id] && p == 0:
			r.t.Errorf("row %s is not published", id)
		case !bad[id] && d > 0:
			r.t.Errorf("row %s is a dead letter", id)
		case p > 1 || d > 1:
			if r.delivery == atLeastOnce {
				r.t.Logf("row %s is there %d times, and %d times as a dead letter", id, p, d)
				continue
			}
			r.t.Errorf("row %s is there %d times, and %d times as a dead letter", id, p, d)
		}
	}
}

// badOf are the ids of rows that fit a condition.
func (r *rig) badOf(where string) map[string]bool {
	r.t.Helper()
	rows, err := r.db.Query(r.ctx, `SELECT id::text FROM bank_outbox WHERE `+where)
	r.check(err)
	bad := map[string]bool{}
	for rows.Next() {
		var id string
		r.check(rows.Scan(&id))
		bad[id] = true
	}
	r.check(rows.Err())
	return bad
}

const putTopic = `INSERT INTO bank_outbox (aggregate_type, aggregate_id, event_type, payload) VALUES ($1, 'k', 'x', '{}')`

// Topics named by a column: legal names keep their case and arrive; the others
// never reach the broker as names, and are passed as the policy has it.
func TestC46TopicNames(t *testing.T) {
	t.Parallel()
	inBoth(t, func(t *testing.T) { inEachPolicy(t, topicNames) })
}

func topicNames(t *testing.T, policy string) {
	r := sharedRig(t)
	legal := []string{r.topic + "_Payment", r.topic + ".a-b", strings.Repeat("x", 200-len(r.topic)) + r.topic}
	bad := []string{
		"bank/loan", "größe", "", ".", "..", "trailing ", strings.Repeat("x", 300), "__consumer_offsets",
		"walstream.checkpoints." + r.pipeline, "Not-allowed", r.topic + "_a.b",
	} // the last one collides with _a_b
	args := []string{"--topic", unset, "--topic-column", "aggregate_type", "--on-poison", policy, "--topics-allowed", "*" + r.topic + "*,__*,walstream.*,[a-l]*,trail*,x*"}
	s := r.stream(args...)
	r.exec(putTopic, r.topic+"_a_b")
	for n := range max(len(legal), len(bad)) {
		r.exec(putTopic, bad[n%len(bad)])
		r.exec(putTopic, legal[n%len(legal)])
	}
	r.untilConfirmed()
	r.check(s.Stop(10 * time.Second))
	topics := append(slices.Clone(legal), r.topic+"_a_b")
	isBad := r.badOf("aggregate_type <> ALL (" + quoted(topics) + ")")
	if len(isBad) != len(bad) {
		t.Fatalf("%d bad rows", len(isBad))
	}
	r.verifyPoison(policy, isBad, topics...)
	for _, name := range []string{"Not-allowed", "trailing", "trailing ", "bank/loan"} {
		if slices.Contains(topicsOf(r), name) {
			t.Errorf("topic %q was made", name)
		}
	}
}

func topicsOf(r *rig) []string {
	r.t.Helper()
	listed, err := r.admin.ListTopics(r.ctx)
	r.check(err)
	return listed.Names()
}

func quoted(texts []string) string {
	var q []string
	for _, text := range texts {
		q = append(q, "'"+text+"'")
	}
	return "ARRAY[" + strings.Join(q, ",") + "]"
}

// Sizes around the limit, 20 MB, incompressible; many small rows between them whose
// batch would exceed it; and the limit lowered while rows flow.
func TestC48SizesAroundTheLimit(t *testing.T) {
	t.Parallel()
	inBoth(t, func(t *testing.T) { inEachPolicy(t, sizesAroundTheLimit) })
}

func sizesAroundTheLimit(t *testing.T, policy string) {
	r := sharedRig(t)
	r.exec(`ALTER TABLE bank_outbox ALTER payload TYPE bytea USING NULL`)
	r.makeTopic(r.topic, 1)
	const limit = 100_000
	r.alter(r.topic, "max.message.bytes", fmt.Sprint(limit))
	args := []string{"--on-poison", policy, "--kafka-compression", []string{"none", "zstd"}[rand.N(2)]}
	s := r.stream(args...)
	sizes := func() {
		for n, size := range []int{limit - 500, limit - 450, limit, limit + 1, 20_000_000, 10, 3 * limit} {
			r.exec(`INSERT INTO bank_outbox (aggregate_type, aggregate_id, event_type, payload) SELECT 'sized', 'acc-' || $2::int, 'x', $1::bytea`,
				incompressible(size), n%7)
			r.exec(`INSERT INTO bank_outbox (aggregate_type, aggregate_id, event_type, payload)
				SELECT 'small', 'acc-' || i % 7, 'deposited', decode(md5(i::text) || md5(random()::text), 'hex') FROM generate_series(1, 2000) i`)
		}
	}
	sizes()
	r.untilConfirmed()
	isBad := r.badOf(fmt.Sprintf("octet_length(payload) >= %d", limit))
	if len(isBad) != 4 {
		t.Fatalf("%d bad rows", len(isBad))
	}
	r.verifyPoison(policy, isBad, r.topic)
	if policy == "dead-letter" {
		for _, rec := range r.letters() {
			if header(rec, "walstream-truncated") != "" {
				t.Errorf("a row of %s bytes was cut", header(rec, "walstream-dead-letter-size"))
			}
		}
	}
	// Lowered under the client's feet: batches of good rows are refused, one row is bad now.
	r.alter(r.topic, "max.message.bytes", "20000")
	sizes()
	r.untilConfirmed()
	maps.Copy(isBad, r.badOf(fmt.Sprintf("octet_length(payload) >= %d AND seq > (SELECT max(seq) / 2 FROM bank_outbox)", limit-500)))
	if len(isBad) != 4+6 {
		t.Fatalf("%d bad rows", len(isBad))
	}
	r.verifyPoison(policy, isBad, r.topic)
	r.untilCounted(s, policy, "too-large", len(isBad))
	if strings.Contains(s.Log(), "walstream: bug") {
		t.Error(s.Log())
	}
}

func incompressible(size int) []byte {
	b := make([]byte, size)
	source := rand.NewChaCha8([32]byte{byte(size)})
	_, _ = source.Read(b)
	return b
}

// untilCounted waits for /status to count so many rows of a class: it is published
// ten times a second.
func (r *rig) untilCounted(s *service.Service, policy, class string, want int) {
	r.t.Helper()
	r.until(fmt.Sprintf("%d rows to be counted as %s, %s", want, policy, class), func() bool {
		var state struct {
			Poisoned map[string]map[string]int `json:"poisoned_rows"`
		}
		_, body, err := s.Get(r.ctx, "/status")
		r.check(err)
		r.check(json.Unmarshal(body, &state))
		if state.Poisoned[policy][class] > want {
			r.t.Fatalf("counted %v", state.Poisoned)
		}
		return state.Poisoned[policy][class] == want
	})
}

// putOld rows whose time a topic of makeYoungTopic refuses, among others.
const putOld = `INSERT INTO bank_outbox (aggregate_type, aggregate_id, event_type, payload, created_at)
	SELECT CASE WHEN i = ANY ($2) THEN 'old' ELSE 'account' END, 'acc-' || i % 7, 'deposited', jsonb_build_object('i', i), CASE WHEN i = ANY ($2) THEN '2001-01-01' ELSE now() END
	FROM generate_series(1, $1::int) i`

// makeYoungTopic makes the rig's topic refuse old rows: only the broker can tell. Its
// args give the rows the time of their column.
func (r *rig) makeYoungTopic() (args []string) {
	r.t.Helper()
	r.makeTopic(r.topic, 1)
	r.alter(r.topic, "message.timestamp.before.max.ms", "86400000")
	return []string{"--timestamp-column", "created_at"}
}

// Only the broker can tell: rows with a time that it does not take, in the midst
// of good ones, in one transaction and in many.
func TestC48CulpritInABatch(t *testing.T) {
	t.Parallel()
	inBoth(t, func(t *testing.T) { inEachPolicy(t, culpritInABatch) })
}

func culpritInABatch(t *testing.T, policy string) {
	r := sharedRig(t)
	s := r.warm(append(r.makeYoungTopic(), "--on-poison", policy)...)
	r.exec(putOld, 3000, []int{777, 2000, 2001})
	for range 50 {
		r.put(3)
	}
	r.exec(putOld, 1, []int{1})
	r.put(10)
	r.untilConfirmed()
	isBad := r.badOf("aggregate_type = 'old'")
	r.verifyPoison(policy, isBad, r.topic)
	r.untilCounted(s, policy, "timestamp", len(isBad))
	// With neither limit nor culprit left, nothing is slow or restarts any more.
	before, err := s.Status(r.ctx)
	r.check(err)
	r.put(1000)
	r.untilConfirmed()
	if after, err := s.Status(r.ctx); err != nil || !maps.Equal(before.Restarts, after.Restarts) {
		t.Errorf("restarts %v, then %v (%v)", before.Restarts, after.Restarts, err)
	}
}

// kill -9 at any moment while every tenth row becomes a dead letter: in
// exactly-once each is there once, and no row is lost, doubled or both.
func TestC48KilledWhileBurying(t *testing.T) { inBothAtOnce(t, killedWhileBurying) }

func killedWhileBurying(t *testing.T) {
	r := sharedRig(t)
	r.makeTopic(r.topic, 3)
	r.alter(r.topic, "max.message.bytes", "2000")
	kills := 6
	if full() {
		kills = 40
	}
	args := []string{"--on-poison", "dead-letter"}
	r.warm(args...).Kill()
	ctx, stop := context.WithCancel(r.ctx)
	done := make(chan error, 1)
	writer := r.connect()
	go func() {
		var err error
		for ctx.Err() == nil && err == nil {
			_, err = writer.Exec(r.ctx, `INSERT INTO bank_outbox (aggregate_type, aggregate_id, event_type, payload)
				SELECT CASE WHEN i % 10 = 3 THEN 'large' ELSE 'account' END, 'acc-' || i % 7, 'deposited',
				to_jsonb(repeat('x', CASE WHEN i % 10 = 3 THEN 3000 ELSE 100 END)) FROM generate_series(1, 1 + (random() * 30)::int) i`)
			time.Sleep(2 * time.Millisecond)
		}
		done <- err
	}()
	for range kills {
		s := r.start(args...)
		r.check(s.WaitStreaming(r.ctx))
		time.Sleep(rand.N(700 * time.Millisecond))
		s.Kill()
	}
	stop()
	r.check(<-done)
	r.stream(args...)
	r.untilConfirmed()
	r.markersWritten(r.topic)
	r.verifyPoison("dead-letter", r.badOf("aggregate_type = 'large'"), r.topic)
}

// A topic that nobody made: a bad row by policy, and waited for by none. Made later,
// it takes the rows from then on.
func TestC46MissingTopic(t *testing.T) {
	t.Parallel()
	inBoth(t, func(t *testing.T) { inEachPolicy(t, missingTopic) })
}

func missingTopic(t *testing.T, policy string) {
	r := sharedRig(t)
	r.makeTopic(r.topic, 1)
	missing := r.topic + "_missing"
	s := r.stream("--topic", unset, "--topic-column", "aggregate_type", "--create-topics", unset, "--topic-partitions", unset, "--on-poison", policy)
	for range 20 {
		r.exec(putTopic, r.topic)
		r.exec(putTopic, missing)
	}
	r.untilConfirmed()
	isBad := r.badOf("aggregate_type <> '" + r.topic + "'")
	r.verifyPoison(policy, isBad, r.topic)
	r.makeTopic(missing, 1)
	time.Sleep(3100 * time.Millisecond) // for so long its absence is remembered
	r.exec(putTopic, missing)
	r.untilConfirmed()
	r.verifyPoison(policy, isBad, r.topic, missing)
	r.untilCounted(s, policy, "topic-missing", 20)
}

// Headers beyond all bounds.
func TestC48HeaderBomb(t *testing.T) {
	t.Parallel()
	inBoth(t, func(t *testing.T) { inEachPolicy(t, headerBomb) })
}

func headerBomb(t *testing.T, policy string) {
	r := sharedRig(t)
	s := r.warm("--on-poison", policy)
	r.exec(`INSERT INTO bank_outbox (aggregate_type, aggregate_id, event_type, payload, headers)
		SELECT 'bomb', 'k', 'x', '{"a":1}', (SELECT jsonb_object_agg('h' || i, md5(i::text)) FROM generate_series(1, 50000) i)`)
	r.put(10)
	r.untilConfirmed()
	r.verifyPoison(policy, r.badOf("aggregate_type = 'bomb'"), r.topic)
	r.check(s.Stop(10 * time.Second))
	if policy == "dead-letter" {
		if letter := r.letters()[0]; string(letter.Value) != `{"a": 1}` || header(letter, "h50000") == "" {
			t.Errorf("the letter has %d headers", len(letter.Headers))
		}
	}
}
