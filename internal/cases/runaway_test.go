package cases

import (
	"strings"
	"testing"
	"time"
)

// A topic that refuses every row does not drain the stream into dead letters, or
// into nothing: after --poison-limit in a row it stops before the next one. Mended,
// it goes on there, and a retry publishes what was put aside.
func TestC48Runaway(t *testing.T) {
	t.Parallel()
	inBoth(t, func(t *testing.T) { inEachPolicy(t, runaway) })
}

func runaway(t *testing.T, policy string) {
	r := sharedRig(t)
	r.makeTopic(r.topic, 1)
	r.alter(r.topic, "max.message.bytes", "2000")
	args := []string{"--on-poison", policy, "--poison-limit", "20"}
	s := r.warm(args...)
	for range 15 { // bad rows with good ones between them never add up
		r.exec(large, 3100)
		r.exec(large, 3100)
		r.put(1)
	}
	r.untilConfirmed()
	for range 50 {
		r.exec(large, 3200)
	}
	r.put(10)
	if code := r.ends(s, 30*time.Second); code != 6 {
		t.Fatalf("exit code %d", code)
	}
	if text := s.Log(); !strings.Contains(text, "the 20 rows of topic") || !strings.Contains(text, "max.message.bytes of 2000") || strings.Contains(text, "walstream skip") {
		t.Error("the message does not say what happened")
	}
	r.alter(r.topic, "max.message.bytes", "20000")
	s = r.stream(args...)
	r.put(10)
	r.untilConfirmed()
	const passed = 15*2 + 20
	isBad := r.badOf("seq IN (SELECT seq FROM bank_outbox WHERE aggregate_id = 'large' ORDER BY seq LIMIT 50)")
	if len(isBad) != passed {
		t.Fatalf("%d bad rows", len(isBad))
	}
	r.verifyPoison(policy, isBad, r.topic)
	if policy != "dead-letter" {
		return
	}
	if out, code := r.command([]string{"dead-letters", "retry", "--all"}); code != 0 {
		t.Fatalf("exit code %d\n%s", code, out)
	}
	r.check(s.Stop(20 * time.Second))
	if duplicates := len(r.published()) - 1 - 15*3 - 50 - 10 - 10; duplicates != 0 {
		t.Errorf("%d records too many", duplicates)
	}
}
