package main

import (
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/walstream/walstream/internal/connect"
	"github.com/walstream/walstream/internal/service"
	"github.com/walstream/walstream/internal/testenv"
)

// The whole run, small: it keeps the tool working, and says nothing about speed.
func TestQuick(t *testing.T) {
	if testing.Short() {
		t.Skip("skipped: -short")
	}
	pg := testenv.NewPostgres(t, postgresOptions)
	kafka := testenv.NewKafka(t, kafkaOptions)
	binary, err := service.Build(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	o := options{rows: 5050, rounds: 2, perTx: 100, both: true, binary: binary, say: t.Logf} // the last transaction is a short one
	if _, err := contenders(t.Context(), o, pg); err != nil {
		t.Skip("skipped:", err)
	}
	report, err := run(t.Context(), o, pg, kafka)
	if err != nil {
		t.Fatal(err)
	}
	if report.Line.Rounds != 2 || report.Line.Ratio <= 0 || report.Line.ExactlyOnce <= 0 || report.Line.CPU <= 0 || len(report.Samples) != 6 {
		t.Errorf("got %+v", report)
	}
	if a, b := report.Samples[0].Contender, report.Samples[3].Contender; a == b {
		t.Errorf("%s began both rounds", a)
	}
	path, err := report.write(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(path); err != nil || !strings.Contains(string(text), report.Versions["postgresql"]) {
		t.Errorf("raw results: %v\n%s", err, text)
	}
}

// Debezium as a contender, small: its rows arrive, each once, and its figures are
// told beside walstream's.
func TestDebezium(t *testing.T) {
	if testing.Short() {
		t.Skip("skipped: -short")
	}
	if _, err := connect.Jars(t.Context()); err != nil {
		testenv.SkipOrFail(t, err)
	}
	pg := testenv.NewPostgres(t, postgresOptions)
	kafka := testenv.NewKafka(t, kafkaOptions)
	binary, err := service.Build(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	o := options{rows: 3000, rounds: 1, perTx: 7, others: "debezium-tuned", binary: binary, say: t.Logf}
	if _, err := contenders(t.Context(), o, pg); err != nil {
		t.Skip("skipped:", err)
	}
	report, err := run(t.Context(), o, pg, kafka)
	if err != nil {
		t.Fatal(err)
	}
	theirs := report.of(nameDebeziumTuned, sample.first)
	if len(report.Samples) != 3 || len(theirs) != 1 || theirs[0] <= 0 || report.Line.Debezium <= 0 {
		t.Errorf("got %+v", report)
	}
	o.others = "debezium-fast"
	if _, err := debeziums(t.Context(), o); err == nil {
		t.Error("an unknown contender was taken")
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
	source := rand.NewChaCha8([32]byte{})
	for _, number := range []int{1, 99, 1_000_000} {
		value := payload(number, "key", source)
		if len(value) != payloadSize || numberOf(value) != number {
			t.Errorf("%d: %d bytes, read back as %d: %.40q", number, len(value), numberOf(value), value)
		}
	}
	for _, other := range []string{"", "{}", strings.Repeat("x", payloadSize)} {
		if number := numberOf([]byte(other)); number != 0 {
			t.Errorf("%.20q was read as %d", other, number)
		}
	}
}

// The line is made of medians over rounds: ratios within a round, not of medians.
func TestConclude(t *testing.T) {
	r := &report{}
	for i, rates := range [][2]float64{{100, 50}, {90, 100}, {120, 100}} {
		r.Samples = append(r.Samples,
			sample{Contender: nameRecvlogical, Round: i + 1, Rate: rates[1], CPU: 1, PeakRSS: 500},
			sample{Contender: nameWalstream, Round: i + 1, Rate: rates[0], CPU: float64(5 + i), PeakRSS: float64(40 + i)})
	}
	r.conclude()
	if want := (line{Ratio: 1.2, CPU: 6, PeakRSS: 42, Rounds: 3}); r.Line != want {
		t.Errorf("got %+v, want %+v", r.Line, want)
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
