package virtual

import (
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"github.com/walstream/walstream/pkg/replication/pgfake"
)

// An hour of outage, of any kind, is a handful of lines of the log: what is wrong,
// how often and for how long at growing pauses, and that it is over.
func TestAnHourOfOutageIsAFewLines(t *testing.T) {
	if !tagged {
		t.Skip(whyTagged)
	}
	const most = 40
	for name, outage := range map[string]struct {
		hour func(w *world)
		// first: it is there when the service starts.
		first bool
		// says is what some line says, with the numbers of the outage.
		says []string
	}{
		"the brokers are down": {func(w *world) {
			heal := brokersDown(w)
			time.Sleep(time.Hour)
			heal()
		}, false, []string{"kafka acknowledges nothing: rows wait", "for=31m", "kafka acknowledges again: rows go on"}},
		"the brokers are down at the start": {func(w *world) {
			heal := brokersDown(w)
			time.Sleep(time.Hour)
			heal()
		}, true, []string{"will start again", "within=31m", "streaming"}},
		"PostgreSQL is down": {func(w *world) {
			w.postgres.Crash()
			time.Sleep(time.Hour)
			w.postgres.Start()
		}, false, []string{"will start again", "within=31m", "streaming", "within=1h"}},
		"every connection is cut, again and again": {func(w *world) {
			for end := time.Now().Add(time.Hour); time.Now().Before(end); time.Sleep(7 * time.Second) {
				w.network.Each(func(*Link) bool { return true }, (*Link).Reset)
			}
		}, false, []string{"will start again", "failures=", "streaming", "the failures before have not come back"}},
		"PostgreSQL crashes, again and again": {func(w *world) {
			for end := time.Now().Add(time.Hour); time.Now().Before(end); time.Sleep(20 * time.Second) {
				w.postgres.Crash()
				time.Sleep(5 * time.Second)
				w.postgres.Start()
			}
		}, false, []string{"will start again", "failures=", "the failures before have not come back"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, err := newWorld(1)
				if err != nil {
					t.Fatal(err)
				}
				defer w.close()
				if !outage.first {
					w.startInstance()
				}
				l := newLoad(w)
				time.Sleep(5 * time.Second)
				l.commit(3)
				time.Sleep(5 * time.Second)
				before := len(w.lines())
				if outage.first {
					time.AfterFunc(time.Second, func() { w.startInstance() })
				}
				time.AfterFunc(time.Minute, func() { l.commit(3) }) // what waits
				outage.hour(w)
				w.settle()
				time.Sleep(2 * time.Minute) // calm
				lines := w.lines()[before:]
				text := strings.Join(lines, "\n")
				if len(lines) > most {
					t.Errorf("%d lines, want at most %d", len(lines), most)
				}
				for _, want := range outage.says {
					if !strings.Contains(text, want) {
						t.Errorf("no line says %q", want)
					}
				}
				for _, failure := range w.broken() {
					t.Error(failure)
				}
				if t.Failed() || testing.Verbose() {
					t.Logf("%d lines:\n%s", len(lines), text)
				}
			})
		})
	}
}

// lines of the instances' logs so far.
func (w *world) lines() (lines []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, line := range w.story {
		if strings.Contains(line, "  walstream-") {
			lines = append(lines, line)
		}
	}
	return lines
}

// Whatever happens to rows, and at any level: the log has nothing of what is in them.
func TestNoPayloadInTheLog(t *testing.T) {
	if !tagged {
		t.Skip(whyTagged)
	}
	const secret = "the balance of account 4711 is 99 cents"
	synctest.Test(t, func(t *testing.T) {
		w, err := newWorld(1)
		if err != nil {
			t.Fatal(err)
		}
		defer w.close()
		w.level = zerolog.TraceLevel
		w.startInstance()
		time.Sleep(10 * time.Second)
		commit := func(topic string, padding int) {
			w.postgres.Commit(pgfake.Row{int64(1), [16]byte{}, topic, []byte(secret), []byte(secret + strings.Repeat(" ", padding))})
			time.Sleep(10 * time.Second)
		}
		commit(topicName, 0)
		heal := brokersDown(w)
		commit(topicName, 0)
		time.Sleep(time.Minute)
		heal()
		time.Sleep(time.Minute)
		commit("no topic: it has a blank", 0) // refused, and the instance ends
		time.Sleep(time.Minute)
		text := strings.Join(w.lines(), "\n")
		for _, event := range []string{"kafka acknowledges nothing", "kafka acknowledges again", "cannot be published to topic"} {
			if !strings.Contains(text, event) {
				t.Errorf("the log does not say %q: this proves too little", event)
			}
		}
		for _, spelling := range []string{
			secret, hex.EncodeToString([]byte(secret)), base64.StdEncoding.EncodeToString([]byte(secret))[:40], fmt.Sprint([]byte(secret)),
		} {
			if strings.Contains(text, spelling) {
				t.Errorf("the log holds %q", spelling)
			}
		}
		if t.Failed() {
			t.Log(text)
		}
	})
}
