package audit

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
)

// bury makes the record of event n a dead letter.
func (w *world) bury(n int) *letter {
	r := w.record(n)
	w.letters = append(w.letters, letter{
		offset: int64(len(w.letters)), id: r.id, topic: "t", key: r.key, value: r.value, lsn: r.lsn, ordinal: r.ordinal,
	})
	w.lose(n)
	return &w.letters[len(w.letters)-1]
}

// retry publishes event n after all, behind everything.
func (w *world) retry(n int) { w.repeat(n, 8).replay = true }

func TestJudgeLetters(t *testing.T) {
	all := numbers{Verdict: Clean, Rows: 7, Found: 7, Records: 7}
	with := func(change func(*numbers)) numbers {
		n := all
		change(&n)
		return n
	}
	one := func(n *numbers) { n.Found, n.Records, n.PutAside = 6, 6, 1 }
	for _, c := range []struct {
		name  string
		plant func(*world)
		want  numbers
		noIDs bool // holds for tables without event ids too
		says  string
	}{
		{"a transaction is put aside", func(w *world) { w.bury(1) }, with(one), true, "put aside dead letter t/0@0"},
		{"a row in the middle of a transaction is: it is not torn", func(w *world) { w.bury(3) }, with(one), true, "put aside"},
		{"a letter twice, after a crash", func(w *world) { l := *w.bury(3); l.offset = 9; w.letters = append(w.letters, l) }, with(one), true, "put aside"},
		{"one is put aside, and another one is missing", func(w *world) { w.bury(2); w.lose(3) }, with(func(n *numbers) {
			n.Verdict, n.Found, n.Records, n.PutAside, n.Missing, n.Torn = Difference, 5, 5, 1, 1, 1
		}), true, "missing"},
		{"a letter does not hide that another row is missing", func(w *world) { w.bury(6); w.lose(7) }, with(func(n *numbers) {
			n.Verdict, n.Found, n.Records, n.PutAside, n.Missing = Difference, 5, 5, 1, 1
		}), true, "missing"},
		{"retried", func(w *world) { w.retry(3); w.bury(3) }, with(func(n *numbers) {
			n.Records, n.Retried, n.Replayed = 6, 1, 1
		}), true, ""},
		{"published after all, after a crash", func(w *world) {
			r := *w.record(3)
			w.bury(3)
			w.records = append(w.records, r)
		}, with(func(n *numbers) {
			n.Retried = 1
		}), true, ""},
		{"its row was deleted", func(w *world) { w.bury(3); w.unrow(3) }, with(func(n *numbers) {
			n.Rows, n.Found, n.Records, n.LettersAlone = 6, 6, 6, 1
		}), true, ""},
		{"a row that fits no record, put aside", func(w *world) { w.row(7).bad = true; w.bury(7) }, with(one), true, "put aside"},
		{"a row that fits no record, and is nowhere", func(w *world) { w.row(7).bad = true; w.lose(7) }, with(func(n *numbers) {
			n.Verdict, n.Found, n.Records, n.Unpublishable = Difference, 6, 6, 1
		}), true, "unpublishable"},
		{"another value in the letter does not matter: it may be cut", func(w *world) { w.bury(3).value = []byte("v") }, with(one), false, "put aside"},
		{"an open transaction hides letters", func(w *world) { w.lose(7); w.facts.letters.hidden = true }, with(func(n *numbers) {
			n.Verdict, n.Found, n.Records, n.Hidden = Undecided, 6, 6, 1
		}), true, ""},
		{"out of the range of LSNs", func(w *world) { w.bury(1); w.scope.from = 1500 }, with(func(n *numbers) {
			n.Rows, n.Found, n.Records = 6, 6, 6
		}), true, ""},
		{"in the range of LSNs", func(w *world) { w.bury(4); w.scope.from, w.scope.to = 1500, 2500 }, with(func(n *numbers) {
			n.Rows, n.Found, n.Records, n.PutAside = 3, 2, 2, 1
		}), true, "put aside"},
	} {
		for _, ids := range []bool{true, false} {
			if !ids && !c.noIDs {
				continue
			}
			t.Run(fmt.Sprintf("%s, ids %v", c.name, ids), func(t *testing.T) {
				w := newWorld()
				c.plant(w)
				if w.drop(); !ids {
					w.withoutIDs()
					for i := range w.letters {
						w.letters[i].id = nil
					}
				}
				got := w.judge(t, 1)
				want := c.want
				if want.Missing > 0 && got.Older > 0 {
					want.Older = got.Older // of no interest here
				}
				compare(t, got, want)
				if said := examplesOf(got); !strings.Contains(said, c.says) || c.says == "" && said != "" {
					t.Errorf("said %q, want %q", said, c.says)
				}
			})
		}
	}
}

// Rows that nothing tells apart: letters count, like events.
func TestJudgeLettersOfRowsAlike(t *testing.T) {
	for _, c := range []struct {
		name  string
		plant func(*world)
		want  numbers
	}{
		{"one is put aside", func(w *world) { w.bury(4) }, numbers{Verdict: Clean, Rows: 7, Found: 6, Records: 6, Shared: 3, PutAside: 1}},
		{"all are", func(w *world) { w.bury(2); w.bury(4); w.bury(6) }, numbers{Verdict: Clean, Rows: 7, Found: 4, Records: 4, Shared: 3, PutAside: 3}},
		{"one is, and one is missing", func(w *world) { w.bury(4); w.lose(6) }, numbers{
			Verdict: Difference, Rows: 7, Found: 5, Records: 5, Shared: 3, PutAside: 1, Missing: 1,
		}},
		{"all are bad, and two put aside", func(w *world) {
			for _, n := range []int{2, 4, 6} {
				w.row(n).bad = true
			}
			w.bury(2)
			w.bury(4)
			w.lose(6)
		}, numbers{Verdict: Difference, Rows: 7, Found: 4, Records: 4, Shared: 3, PutAside: 2, Unpublishable: 1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld()
			for _, n := range []int{2, 4, 6} {
				w.row(n).key, w.row(n).value = []byte("k0"), []byte("same")
				w.record(n).key, w.record(n).value = []byte("k0"), []byte("same")
			}
			c.plant(w)
			w.withoutIDs()
			for i := range w.letters {
				w.letters[i].id = nil
			}
			compare(t, w.judge(t, 1<<20), c.want)
		})
	}
}

// TestPutAside: rows of several kinds of badness on real servers, audited while they
// are dead letters, after a retry, and when others were skipped.
func TestPutAside(t *testing.T) {
	for kind, delivery := range map[string]string{"ours": "exactly-once", "no event id": "at-least-once"} {
		t.Run(kind, func(t *testing.T) { putAside(newRig(t, kind), delivery) })
	}
}

func putAside(r *rig, delivery string) {
	t, limit := r.t, "5000"
	_, err := kadm.NewClient(r.client).AlterTopicConfigs(r.ctx, []kadm.AlterConfig{{Name: "max.message.bytes", Value: &limit}}, r.topic)
	r.check(err)
	table := kinds[r.kind].mapping.Table
	s := r.stream("--on-poison=dead-letter", "--delivery="+delivery, "--kafka-compression=none")
	r.put(20)
	r.put(1)
	r.exec("CREATE FUNCTION spoil() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NEW; END $$")
	r.exec("CREATE TRIGGER spoil BEFORE INSERT ON " + table + " FOR EACH ROW EXECUTE FUNCTION spoil()")
	spoiled := 0
	spoil := func(assignment string) {
		r.exec("CREATE OR REPLACE FUNCTION spoil() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN " + assignment + "; RETURN NEW; END $$")
		r.put(1)
		r.exec("CREATE OR REPLACE FUNCTION spoil() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NEW; END $$")
		spoiled++
	}
	spoil("NEW.payload := convert_to(repeat('x', 6000), 'UTF8')")
	spoil("NEW.topic := 'no such/topic'")
	spoil("NEW.topic := '__consumer_offsets'")
	spoil("NEW.topic := NEW.topic || '-missing'")
	if r.kind == "ours" {
		spoil("NEW.headers := '[1]'")
	} else {
		spoil("NEW.topic := NULL")
	}
	r.put(3)
	r.published()
	rows := r.count()
	result := r.audit(nil)
	want(t, result, map[string]int64{"rows": rows, "found": rows - int64(spoiled), "put aside": int64(spoiled)}, Clean)
	if text := result.Table(); !strings.Contains(text, "clean, but for 5 rows put aside") {
		t.Error(text)
	}

	// The limit is raised, the topic made: what can be retried is, and is all right.
	limit = "50000"
	_, err = kadm.NewClient(r.client).AlterTopicConfigs(r.ctx, []kadm.AlterConfig{{Name: "max.message.bytes", Value: &limit}}, r.topic)
	r.check(err)
	r.createTopic(r.topic + "-missing")
	out, _ := exec.CommandContext(r.ctx, r.binary(), append([]string{"dead-letters", "retry", "--all"}, r.args()...)...).CombinedOutput()
	result = r.audit(nil)
	want(t, result, map[string]int64{"rows": rows, "found": rows - 3, "put aside": 3, "retried": 2}, Clean)
	if t.Failed() {
		t.Logf("retry said %s", out)
	}

	// Skipped rows are nowhere: missing, and the report says how to tell them.
	r.check(s.Stop(20 * time.Second))
	r.stream("--on-poison=skip", "--delivery="+delivery, "--kafka-compression=none")
	spoil("NEW.topic := 'no such/topic'")
	r.put(1)
	r.published()
	result = r.audit(nil)
	want(t, result, map[string]int64{"rows": rows + 2, "found": rows - 2, "put aside": 3, "retried": 2, "missing": 1}, Difference)
	if text := result.Table(); !strings.Contains(text, "--on-poison skip") {
		t.Error(text)
	}
}
