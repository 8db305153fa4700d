package main

import (
	"encoding/xml"
	"errors"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/walstream/walstream/internal/connect"
	"github.com/walstream/walstream/internal/service"
	"github.com/walstream/walstream/internal/testenv"
)

// newTestWorld with options that are small.
func newTestWorld(t *testing.T, o options) *world {
	if testing.Short() {
		t.Skip("skipped: -short")
	}
	t.Parallel()
	pg := testenv.NewPostgres(t, postgresOptions)
	kafka := testenv.NewKafka(t, kafkaOptions)
	binary, err := service.Build(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	o.rows, o.perTx, o.bytes, o.binary, o.say = 5050, 100, 1024, binary, t.Logf // the last transaction is a short one
	o.pace = pace{rates: []int{50}, warmUp: time.Second, took: 2 * time.Second, idle: time.Second}
	w, err := newWorld(t.Context(), o, pg, kafka)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.close)
	return w
}

// What make bench-quick does, and then, on the same servers, growth and
// compression, small: it keeps the tool working, and says nothing about speed.
func TestQuick(t *testing.T) {
	w := newTestWorld(t, options{rounds: 2})
	f, err := quickField(t.Context(), w.options, w.pg)
	if err != nil {
		t.Skip("skipped:", err)
	}
	r := newReport(t.Context(), w, f)
	if err := errors.Join(quick(t.Context(), w, r, f), r.err()); err != nil {
		t.Fatal(err)
	}
	l := r.Line
	if l.Rounds != 2 || l.Text <= 0 || l.Binary <= 0 || l.ExactlyOnce <= 0 || l.CPU <= 0 || len(r.Drains[0].Samples) != 8 {
		t.Errorf("got %+v, %+v", l, r.Drains[0])
	}
	if a, b := r.Drains[0].Samples[0].Contender, r.Drains[0].Samples[4].Contender; a == b {
		t.Errorf("%s began both rounds", a)
	}
	path, err := r.write(t.TempDir(), "quick")
	if err != nil {
		t.Fatal(err)
	}
	if read, err := readReport(path); err != nil || read.page() != r.page() || read.Versions["postgresql"] == "" {
		t.Errorf("raw results: %v, %+v", err, read)
	}

	w.rounds = 1
	f = ownField(w.options, "none", "zstd")
	r = newReport(t.Context(), w, f)
	works := []work{{Rows: 3 * statementRows, Bytes: 256, PerTx: statementRows + 1, Topics: 2, Partitions: 2}}
	if err := errors.Join(drainWorks(t.Context(), w, r, f, works), r.err()); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{nameWalstream, nameExactlyOnce} {
		plain, small := median(r.Drains[0].values(name, sample.stored)), median(r.Drains[0].values(name+", zstd", sample.stored))
		if small <= 0 || small >= plain {
			t.Errorf("%s: %v bytes per row on the broker, %v with zstd", name, plain, small)
		}
	}
}

// Everybody side by side, Debezium among them, in a drain, at a steady rate, and
// at rest.
func TestFull(t *testing.T) {
	if _, err := connect.Jars(t.Context()); !testing.Short() && err != nil {
		testenv.SkipOrFail(t, err)
	}
	w := newTestWorld(t, options{rounds: 1, others: []string{"debezium-tuned"}})
	f, err := fullField(t.Context(), w.options, w.pg)
	if err != nil {
		t.Fatal(err)
	}
	r := newReport(t.Context(), w, f)
	small := []leg{{work: usual(3000, 7), rounds: 1, tuned: 1}}
	if err := errors.Join(run(t.Context(), w, r, f, small), r.err()); err != nil {
		t.Fatal(err)
	}
	if d := r.Drains[0]; len(d.Samples) != len(f.all) || d.line().Debezium <= 0 || len(d.values(nameDebeziumWell, sample.first)) != 1 {
		t.Errorf("of %d: %+v", len(f.all), d)
	}
	for _, name := range []string{nameWalstream, nameExactlyOnce, nameDebeziumWell} {
		found := slices.ContainsFunc(r.Latencies, func(l latency) bool { return l.Contender == name && l.N == 100 && l.P50 > 0 && l.Max >= l.P999 })
		rested := slices.ContainsFunc(r.Idle, func(i idle) bool { return i.Contender == name && i.RSS > 1 })
		if !found || !rested {
			t.Errorf("%s: %+v, %+v", name, r.Latencies, r.Idle)
		}
	}
	if page := r.page(); !strings.Contains(page, "Latency") || !strings.Contains(page, "Idle") {
		t.Error(page)
	}
}

func TestFieldRefusesWhomNobodyKnows(t *testing.T) {
	if err := new(field).addDebeziums(t.Context(), []string{"debezium-fast"}); err == nil {
		t.Error("an unknown contender was taken")
	}
}

// Who is not run is on the page, with the reason; so is what does not count.
func TestPageNamesWhatIsMissing(t *testing.T) {
	f := &field{}
	f.without(errors.New("no Java\nhere"), nameDebezium)
	r := &report{NotRun: f.absent, Failed: []string{"walstream: 1 of 2 rows arrived"}}
	for _, want := range []string{"Not run: Debezium, default: no Java here.", "does not count: walstream: 1 of 2"} {
		if page := r.page(); !strings.Contains(page, want) {
			t.Errorf("%q lacks %q", page, want)
		}
	}
}

func TestLegs(t *testing.T) {
	for _, l := range legs(options{rows: 300_000, rounds: 9}) {
		if l.work.Rows < 1 || l.rounds < 1 || !l.takesPart(walstream{compression: "none"}, 2) {
			t.Errorf("%+v", l)
		}
		if well := (debezium{label: nameDebeziumWell}); !l.takesPart(well, 1) {
			t.Errorf("%s is not in %s", well.name(), l.work)
		}
	}
}

func TestPicture(t *testing.T) {
	svg := bars("a < b", 1, []bar{{"walstream", []float64{1, 2, 9}}, {"other", []float64{0}}})
	if err := xml.Unmarshal([]byte(svg), new(struct{})); err != nil || !strings.Contains(svg, "2.0 [1.0-9.0]") {
		t.Errorf("%v\n%s", err, svg)
	}
}

// The last third begins with the first look that sees two thirds there.
func TestCourse(t *testing.T) {
	c := newCourse(900, os.Getpid(), time.Now())
	for _, arrived := range []int64{0, 1, 599, 630, 700} {
		c.note(arrived)
	}
	if c.begunAt != 630 || !c.ended.IsZero() {
		t.Fatalf("got %+v", c)
	}
	c.begun = c.begun.Add(-time.Second)
	c.note(900)
	c.note(901)
	var s sample
	c.fill(&s)
	if s.First <= 0 || s.WarmRate > 270 || s.WarmRate < 100 {
		t.Errorf("got %+v", s)
	}
	s = sample{}
	if newCourse(900, os.Getpid(), time.Now()).fill(&s); s != (sample{}) {
		t.Errorf("without a row: %+v", s)
	}
}

func TestPayloadCarriesItsNumber(t *testing.T) {
	const size = 1024
	source := rand.NewChaCha8([32]byte{})
	for _, number := range []int{1, 99, 1_000_000} {
		value := payload(number, "key", size, source)
		if len(value) != size || numberOf(value, size) != number {
			t.Errorf("%d: %d bytes, read back as %d: %.40q", number, len(value), numberOf(value, size), value)
		}
	}
	for _, other := range []string{"", "{}", strings.Repeat("x", size)} {
		if number := numberOf([]byte(other), size); number != 0 {
			t.Errorf("%.20q was read as %d", other, number)
		}
	}
}

// The line is made of medians over rounds: ratios within a round, not of medians.
func TestLine(t *testing.T) {
	d := &drained{}
	for i, rates := range [][2]float64{{100, 50}, {90, 100}, {120, 100}} {
		d.Samples = append(d.Samples,
			sample{Contender: nameRecvlogical, Round: i + 1, Rate: rates[1], CPU: 1, PeakRSS: 500},
			sample{Contender: nameWalstream, Round: i + 1, Rate: rates[0], CPU: float64(5 + i), PeakRSS: float64(40 + i), WalsenderBusy: 0.9},
			sample{Contender: nameExactlyOnce, Round: i + 1, Rate: rates[0], PeakRSS: 50})
	}
	if got, want := *d.line(), (line{Text: 1.2, ExactlyOnce: 1, CPU: 6, WalsenderBusy: 0.9, PeakRSS: 50, Rounds: 3}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestConclude(t *testing.T) {
	var taken []time.Duration
	for i := 2000; i > 0; i-- {
		taken = append(taken, time.Duration(i)*time.Millisecond)
	}
	if got, want := conclude(taken), (latency{P50: 1000, P99: 1980, P999: 1998, Max: 2000, N: 2000}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestParse(t *testing.T) {
	number, at, err := parse([]byte("1700000000000001 42 payload with spaces"))
	if err != nil || number != 42 || at.UnixMicro() != 1700000000000001 {
		t.Errorf("got %d, %s, %v", number, at, err)
	}
	for _, value := range []string{"", "1 2", "x 1 y", "1 x y"} {
		if _, _, err := parse([]byte(value)); err == nil {
			t.Errorf("%q was read", value)
		}
	}
}

func TestMedian(t *testing.T) {
	for _, c := range []struct {
		values []float64
		want   float64
	}{{[]float64{7}, 7}, {[]float64{9, 1}, 5}, {[]float64{3, 1, 2}, 2}, {[]float64{4, 1, 3, 2}, 2.5}} {
		if got := median(c.values); got != c.want {
			t.Errorf("median of %v: %v, want %v", c.values, got, c.want)
		}
	}
}

func TestProc(t *testing.T) {
	if _, err := os.Stat("/proc/self/stat"); err != nil {
		t.Skip("skipped: no /proc here")
	}
	peak, err := peakRSS(os.Getpid())
	if err != nil || peak < 1<<20 || peak > 1<<36 {
		t.Errorf("peak %d: %v", peak, err)
	}
	const work = 30 * time.Millisecond
	begun, err := cpuTime(os.Getpid())
	for from, cpu := time.Now(), begun; err == nil && cpu < begun+work; cpu, err = cpuTime(os.Getpid()) {
		if time.Since(from) > 10*time.Second {
			t.Fatalf("10 s of work left the CPU time at %s", cpu)
		}
	}
	if err != nil || begun > time.Hour {
		t.Errorf("cpu %s: %v", begun, err)
	}
	if _, err := cpuTime(0); err == nil {
		t.Error("no process has the id 0")
	}
}
