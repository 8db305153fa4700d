package ops

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/walstream/walstream/pkg/pipeline"
	"github.com/walstream/walstream/pkg/replication"
)

// envScreenshots names a directory for pictures of the page, to be looked at.
const envScreenshots = "WALSTREAM_TEST_SCREENSHOTS"

// browser is a Chromium of this machine.
func browser(t *testing.T) string {
	t.Helper()
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	t.Skip("skipped: no chromium on the PATH to open the page in (Debian's package chromium has it)")
	return ""
}

// story is what /status says at the nth second; an error is no answer.
type story func(second int) (status, error)

// serve serves the real page over a story, in which each question is a second
// later than the one before.
func serve(t *testing.T, tell story) string {
	t.Helper()
	var second atomic.Int64
	mux := http.NewServeMux()
	pages(mux)
	mux.HandleFunc("GET /status", func(w http.ResponseWriter, _ *http.Request) {
		s, err := tell(int(second.Add(1) - 1))
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		answer(w, http.StatusOK, s)
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return server.URL
}

// open loads the page, lets seconds of its time pass, and returns what is in it
// then. With a picture's name it also leaves one.
func open(t *testing.T, chromium, url string, seconds int, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	args = append([]string{
		"--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars", "--user-data-dir=" + t.TempDir(),
		fmt.Sprintf("--virtual-time-budget=%d", seconds*1000), "--enable-logging=stderr",
	}, args...)
	cmd := exec.CommandContext(ctx, chromium, append(args, url)...)
	var said strings.Builder
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, said.String())
	}
	// What the page's own script, or its policy, complains of.
	for line := range strings.Lines(said.String()) {
		if strings.Contains(line, "CONSOLE") && !strings.Contains(line, "502 (Bad Gateway)") {
			t.Errorf("the console says: %s", line)
		}
	}
	return string(out)
}

func render(t *testing.T, chromium, url string, seconds int) string {
	t.Helper()
	return open(t, chromium, url, seconds, "--dump-dom")
}

var start = time.Date(2026, 11, 30, 14, 0, 0, 0, time.UTC)

// told is the status of a story's second.
func told(second int, p *pipeline.Progress, errs ...incident) (status, error) {
	now := start.Add(time.Duration(second) * time.Second)
	p.At, p.Since = now, start.Add(-26*time.Hour)
	p.Health.At = now
	if p.Counters.ProgressAt.IsZero() {
		p.Counters.ProgressAt = now
	}
	if p.Restarts == nil {
		p.Restarts = map[string]uint64{} // as the pipeline's always is
	}
	s := newStatus(testConfig(p), p, now)
	s.Events, s.EventBytes, s.Transactions, s.Commits = 1_204_377, 616_641_024, 120_437, 24_087
	s.Errors = append((&history{}).list(), errs...)
	return s, nil
}

func wave(second int, around, swing float64) int {
	return int(max(0, around+swing*math.Sin(float64(second)/9)+swing/2*math.Sin(float64(second)/2.3)))
}

// lively is a pipeline under a load that comes and goes, with a broker that was
// away for a while.
func lively(second int) (status, error) {
	p := streaming()
	p.Restarts = map[string]uint64{"kafka": 1, "postgres": 2}
	outage := 0
	if second > 120 && second < 170 {
		outage = (second - 120) * 400_000
	}
	late := wave(second, 9000, 9000)
	p.Received = pglogrepl.LSN(0x16B374D848 + second*700_000)
	p.Health.WALEnd = p.Received + pglogrepl.LSN(late/4)
	p.Published = p.Received - pglogrepl.LSN(late+outage)
	p.Confirmed = p.Published - pglogrepl.LSN(late/3)
	p.Health.Restart = p.Confirmed - 48<<20
	p.InFlightEvents, p.InFlightBytes = late/100, late
	p.OldestCommit, p.OldestAge = start, time.Duration(3+late/900+outage/1000)*time.Millisecond
	s, err := told(second, p, incident{
		Message: "Kafka does not answer: dial tcp 10.0.3.7:9092: connect: connection refused",
		First:   start.Add(120 * time.Second), Last: start.Add(170 * time.Second), Times: 1,
	})
	x := float64(second)
	s.Events += uint64(2000*x + 5000*math.Sin(x/9) + 600*math.Sin(x/2.3))
	s.EventBytes = s.Events * 512
	s.CommitToAck = samples{Count: uint64(second) * 100, Seconds: 0.42*x + 0.6*math.Sin(x/7) + 0.1*math.Sin(x/2)}
	if outage > 0 {
		s.CommitToAck = samples{Count: 12000, Seconds: 50}
	}
	return s, err
}

const refusal = `pipeline "bank.bank_outbox_slot": slot "bank_outbox_slot" is at 16/B374E100, ahead of the checkpoint (16/B374D848): somebody else moved it. The 2,232 bytes of WAL between were never published by walstream. ` +
	`Publish those rows from the table, then start once with --accept-gap=16/B374D848..16/B374E100`

var stories = map[string]story{
	"streaming": lively,
	"standby": func(second int) (status, error) {
		return told(second, &pipeline.Progress{
			State: pipeline.Standby, Reason: `slot "bank_outbox_slot" is held by PID 4711 at 10.0.3.4 since 2026-11-29 09:12:44`, Restarts: map[string]uint64{"slot-busy": 1},
		})
	},
	"refused": func(second int) (status, error) {
		return told(second, &pipeline.Progress{State: pipeline.Refused, Reason: refusal, DownSince: start.Add(-time.Minute)},
			incident{Message: refusal, First: start.Add(-time.Minute), Last: start, Times: 1, Now: true})
	},
	"waiting": func(second int) (status, error) {
		reason := "open the ordinary session: failed to connect to `host=db.internal user=walstream database=bank`: dial error: dial tcp 10.0.3.9:5432: connect: connection refused"
		return told(second, &pipeline.Progress{State: pipeline.Waiting, Reason: reason, DownSince: start.Add(-8 * time.Minute), Restarts: map[string]uint64{"postgres": 18}},
			incident{Message: reason, First: start.Add(-8 * time.Minute), Last: start, Times: 1, Now: true})
	},
	"stalled": func(second int) (status, error) {
		p := behind()
		p.Counters.ProgressAt, p.Trouble = start.Add(-2*time.Minute), "dial tcp 10.0.3.7:9092: i/o timeout"
		p.Health.WALStatus, p.Health.Restart = "unreserved", 100
		low := int64(600)
		p.Health.SafeWALSize = &low
		return told(second, p, incident{Message: "Kafka does not answer: " + p.Trouble, First: start.Add(-2 * time.Minute), Last: start, Times: 3, Now: true})
	},
	"snapshot": func(second int) (status, error) {
		p := streaming()
		p.State, p.Counters.ProgressAt = pipeline.Snapshotting, start.Add(time.Duration(second)*time.Second)
		p.Snapshot = &pipeline.SnapshotProgress{Since: start.Add(-time.Minute), Rows: 1_250_000, Resumed: 50_000, Estimate: 5_000_000, Keys: 321}
		s, err := told(second, p)
		s.Snapshot = newSnapshot(p.Snapshot, start)
		return s, err
	},
	"blind": func(second int) (status, error) {
		p := streaming()
		p.Health = replication.Health{Err: errors.New(`read the health of slot "bank_outbox_slot": FATAL: too many connections`)}
		return told(second, p)
	},
}

func TestPageShowsEachState(t *testing.T) {
	chromium := browser(t)
	for name, want := range map[string][]string{
		"streaming": {`class="good"`, ">streaming<", "16/B", "not acknowledged yet", "WAL kept for it", "connection refused", "kafka 1, postgres 2", ">rows deleted<", "the role lacks DELETE"},
		"standby":   {`class="good"`, ">standby<", "held by PID 4711", "takes over when the slot is free", ">not streaming<"},
		"refused":   {`class="bad"`, ">refused<", "--accept-gap=16/B374D848..16/B374E100", "It needs a person", "now, since"},
		"waiting":   {`class="bad"`, "waiting, unhealthy", "connection refused", "It starts again by itself", "postgres 18"},
		"stalled":   {`class="bad"`, "streaming, unhealthy", "20 rows wait for Kafka to acknowledge them (dial tcp", "3 times", "raise max_slot_wal_keep_size now", "600 B more may be written"},
		"snapshot":  {`class="good"`, ">snapshot<", "1,250,000 rows", "5,000,000 rows", "20,000", "3 min", "321 rows", `value="0.25"`},
		"blind":     {`class="warn"`, "the slot cannot be read", "too many connections", "max_connections", "unknown"},
	} {
		t.Run(name, func(t *testing.T) {
			dom := render(t, chromium, serve(t, stories[name]), 5)
			for _, text := range want {
				if !strings.Contains(dom, text) {
					t.Errorf("no %q in the page", text)
				}
			}
			if strings.Contains(dom, `<body class="stale"`) || !regexp.MustCompile(`id="stale"[^>]* hidden`).MatchString(dom) {
				t.Error("the page takes what it was told for stale")
			}
			if strings.Contains(dom, "NaN") || strings.Contains(dom, "undefined") || strings.Contains(dom, ">null<") {
				t.Errorf("nonsense in the page:\n%s", dom)
			}
		})
	}
}

// TestPageSaysWhenNobodyAnswers, and takes it back when somebody does.
func TestPageSaysWhenNobodyAnswers(t *testing.T) {
	chromium := browser(t)
	silentFrom := func(from, until int) story {
		return func(second int) (status, error) {
			if second >= from && second < until {
				return status{}, errors.New("nobody")
			}
			return lively(second)
		}
	}
	const never = math.MaxInt
	dom := render(t, chromium, serve(t, silentFrom(3, never)), 8)
	if !strings.Contains(dom, `<body class="stale"`) || !strings.Contains(dom, "No answer since ") || !strings.Contains(dom, "it answers 502") {
		t.Errorf("the page takes old numbers for new ones")
	}
	if dom = render(t, chromium, serve(t, silentFrom(0, never)), 5); !strings.Contains(dom, "No answer yet") {
		t.Errorf("the page says nothing of an answer that never came")
	}
	if dom = render(t, chromium, serve(t, silentFrom(2, 4)), 8); strings.Contains(dom, `<body class="stale"`) || !strings.Contains(dom, ">streaming<") {
		t.Errorf("the page does not recover")
	}
}

// TestPageReadsTheRealStatus, of a process that has just begun and of one at work.
func TestPageReadsTheRealStatus(t *testing.T) {
	chromium, now := browser(t), time.Now()
	for state, p := range map[string]*pipeline.Progress{
		"connecting": {At: now, Since: now, DownSince: now, State: pipeline.Connecting, Reason: "starting", Restarts: map[string]uint64{}},
		"streaming":  streaming(),
	} {
		cfg := testConfig(p)
		server := httptest.NewServer(handler(cfg, NewMetrics(cfg), &history{}))
		dom := render(t, chromium, server.URL, 3)
		if server.Close(); strings.Contains(dom, `<body class="stale"`) || !strings.Contains(dom, ">"+state+"<") || !strings.Contains(dom, "Nothing since the process began") {
			t.Errorf("%s:\n%s", state, dom)
		}
	}
}

// TestPageIsServedWithItsPolicy by the real handler; nothing of it is inline.
func TestPageIsServedWithItsPolicy(t *testing.T) {
	p := streaming()
	p.Reason = "user=walstream password=hunter2"
	cfg := testConfig(p)
	cfg.Redact = func(text string) string { return strings.ReplaceAll(text, "hunter2", "***") }
	past := &history{}
	past.note([]string{p.Reason}, "", time.Now())
	h := handler(cfg, NewMetrics(cfg), past)
	get := func(path string) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, http.NoBody))
		return w
	}
	for path, kind := range map[string]string{"/": "text/html", "/page.css": "text/css", "/page.js": "text/javascript", "/plot.js": "text/javascript"} {
		w := get(path)
		if w.Code != 200 || !strings.HasPrefix(w.Header().Get("Content-Type"), kind) || !strings.Contains(w.Header().Get("Content-Security-Policy"), "default-src 'none'") {
			t.Errorf("%s: %d %v", path, w.Code, w.Header())
		}
		if found := regexp.MustCompile(`(?i)<script>|<style|\son\w+=|style=|https?://|innerHTML`).FindString(w.Body.String()); found != "" {
			t.Errorf("%s: %s", path, found)
		}
	}
	if w := get("/other"); w.Code != http.StatusNotFound {
		t.Errorf("/other: %d", w.Code)
	}
	for _, path := range []string{"/status", "/healthz", "/readyz", "/livez"} {
		if w := get(path); strings.Contains(w.Body.String(), "hunter2") || w.Header().Get("Cache-Control") != "no-store" {
			t.Errorf("%s: %v %s", path, w.Header(), w.Body)
		}
	}
}

// TestScreenshots leaves pictures of all states, wide and on a phone, by day and
// by night.
func TestScreenshots(t *testing.T) {
	dir := os.Getenv(envScreenshots)
	if dir == "" {
		t.Skip("skipped: " + envScreenshots + " names no directory for pictures")
	}
	chromium := browser(t)
	told := maps.Clone(stories)
	told["silent"] = func(second int) (status, error) {
		if second > 200 {
			return status{}, errors.New("nobody")
		}
		return lively(second)
	}
	for name, tell := range told {
		for size, window := range map[string]string{"wide": "1200,1180", "phone": "390,2300"} {
			for scheme, setting := range map[string]string{"light": "1", "dark": "0"} {
				picture := filepath.Join(dir, name+"-"+size+"-"+scheme+".png")
				open(t, chromium, serve(t, tell), 280, "--screenshot="+picture, "--window-size="+window, "--blink-settings=preferredColorScheme="+setting)
			}
		}
	}
}
