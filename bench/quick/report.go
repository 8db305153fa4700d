package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// line is the JSON line.
type line struct {
	Ratio   float64 `json:"alo_vs_recvlogical_text"` // median of the rounds' ratios
	CPU     float64 `json:"cpu_s_per_million"`       // of walstream, median
	PeakRSS float64 `json:"peak_rss_mb"`             // of walstream, the highest
	Rounds  int     `json:"rounds"`
	// Of exactly-once over at-least-once, when both ran: median of the rounds'.
	ExactlyOnce float64 `json:"eo_vs_alo,omitempty"`
	// Against Debezium, tuned, when it ran: rates over the whole drain, rates over
	// the last third, and CPU of the whole drain over Debezium's of the last third.
	Debezium     float64 `json:"alo_vs_debezium_tuned,omitempty"`
	DebeziumWarm float64 `json:"alo_vs_debezium_tuned_warm,omitempty"`
	DebeziumCPU  float64 `json:"cpu_vs_debezium_tuned_warm,omitempty"`
}

// report is what a run found, and where: the raw results.
type report struct {
	When     time.Time         `json:"when"`
	Machine  map[string]string `json:"machine"`
	Versions map[string]string `json:"versions"`
	Work     map[string]int    `json:"work"`
	Samples  []sample          `json:"samples"`
	Line     line              `json:"line"`

	names []string // of the contenders, in the order of the table
}

func newReport(ctx context.Context, w *world, all []contender) *report {
	r := &report{
		When: time.Now().UTC().Truncate(time.Second), Machine: machine(),
		Work:     map[string]int{"rows": w.rows, "bytes": payloadSize, "rows_per_transaction": w.perTx, "partitions": partitions, "rounds": w.rounds},
		Versions: map[string]string{"go": runtime.Version()},
	}
	for _, c := range all {
		r.Versions[c.name()] = c.version(ctx)
		r.names = append(r.names, c.name())
	}
	var server string
	if err := w.db.QueryRow(ctx, `SHOW server_version`).Scan(&server); err == nil {
		r.Versions["postgresql"] = server
	}
	if versions, err := w.admin.ApiVersions(ctx); err == nil {
		for _, broker := range versions {
			r.Versions["kafka"] = broker.VersionGuess()
		}
	}
	if out, err := exec.CommandContext(ctx, "java", "-version").CombinedOutput(); err == nil {
		r.Versions["java"], _, _ = strings.Cut(string(out), "\n")
	}
	return r
}

// machine describes what the figures hold for.
func machine() map[string]string {
	m := map[string]string{"os": runtime.GOOS + "/" + runtime.GOARCH, "cpus": fmt.Sprint(runtime.NumCPU())}
	first := func(path, prefix string) string {
		file, err := os.Open(path)
		if err != nil {
			return ""
		}
		defer func() { _ = file.Close() }()
		for lines := bufio.NewScanner(file); lines.Scan(); {
			if name, value, ok := strings.Cut(lines.Text(), ":"); ok && strings.TrimSpace(name) == prefix {
				return strings.TrimSpace(value)
			}
		}
		return ""
	}
	m["cpu"] = first("/proc/cpuinfo", "model name")
	m["memory"] = first("/proc/meminfo", "MemTotal")
	if text, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil {
		m["kernel"] = strings.TrimSpace(string(text))
	}
	return m
}

// of returns a figure of a contender, by round.
func (r *report) of(contender string, figure func(sample) float64) []float64 {
	found := slices.DeleteFunc(slices.Clone(r.Samples), func(s sample) bool { return s.Contender != contender })
	slices.SortFunc(found, func(a, b sample) int { return a.Round - b.Round })
	var values []float64
	for _, s := range found {
		values = append(values, figure(s))
	}
	return values
}

// conclude fills the line.
func (r *report) conclude() {
	ours := r.of(nameWalstream, sample.rate)
	r.Line = line{
		Ratio: r.ratio(nameWalstream, nameRecvlogical), CPU: round(median(r.of(nameWalstream, sample.cpu)), 2),
		PeakRSS: round(slices.Max(r.of(nameWalstream, sample.peak)), 1), Rounds: len(ours),
	}
	if len(r.of(nameExactlyOnce, sample.rate)) > 0 {
		r.Line.ExactlyOnce = r.ratio(nameExactlyOnce, nameWalstream)
	}
	if len(r.of(nameDebeziumTuned, sample.rate)) > 0 {
		r.Line.Debezium = r.ratio(nameWalstream, nameDebeziumTuned)
		r.Line.DebeziumWarm = r.ratioOf(nameWalstream, sample.warmRate, nameDebeziumTuned, sample.warmRate)
		r.Line.DebeziumCPU = r.ratioOf(nameWalstream, sample.cpu, nameDebeziumTuned, sample.warmCPU)
	}
}

// ratio of two contenders' rates: the median of the rounds'.
func (r *report) ratio(a, b string) float64 { return r.ratioOf(a, sample.rate, b, sample.rate) }

func (r *report) ratioOf(a string, x func(sample) float64, b string, y func(sample) float64) float64 {
	over, under := r.of(a, x), r.of(b, y)
	var ratios []float64
	for i := range over {
		if under[i] > 0 { // else it was not known
			ratios = append(ratios, over[i]/under[i])
		}
	}
	if len(ratios) == 0 {
		return 0
	}
	return round(median(ratios), 3)
}

func (s sample) rate() float64      { return s.Rate }
func (s sample) cpu() float64       { return s.CPU }
func (s sample) walsender() float64 { return s.WalsenderCPU }
func (s sample) peak() float64      { return s.PeakRSS }
func (s sample) warmRate() float64  { return s.WarmRate }
func (s sample) warmCPU() float64   { return s.WarmCPU }
func (s sample) first() float64     { return s.First }

// print shows medians and ranges to people.
func (r *report) print(out io.Writer) {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "contender\trows/s\tCPU s per million\twalsender\tpeak RSS MB\tlast third: rows/s\tCPU s per million\ts to first row")
	for _, name := range r.names {
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", name, spread(r.of(name, sample.rate), 0), spread(r.of(name, sample.cpu), 2),
			spread(r.of(name, sample.walsender), 2), spread(r.of(name, sample.peak), 0),
			spread(r.of(name, sample.warmRate), 0), spread(r.of(name, sample.warmCPU), 2), spread(r.of(name, sample.first), 2))
	}
	_ = table.Flush() // to stderr: there is nobody to tell
	fmt.Fprintf(out, "%d rows of %d bytes in transactions of %d, %d rounds; median [range]; %s x %s\n",
		r.Work["rows"], r.Work["bytes"], r.Work["rows_per_transaction"], r.Line.Rounds, r.Machine["cpus"], r.Machine["cpu"])
}

// write keeps the raw results as a file of their own.
func (r *report) write(dir string) (path string, err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return "", err
	}
	path = filepath.Join(dir, "quick-"+r.When.Format("20060102-150405")+".json")
	return path, os.WriteFile(path, append(text, '\n'), 0o644)
}

func spread(values []float64, digits int) string {
	if len(values) == 0 || slices.Max(values) == 0 {
		return "-" // not known here
	}
	return fmt.Sprintf("%.*f [%.*f-%.*f]", digits, median(values), digits, slices.Min(values), digits, slices.Max(values))
}

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	half := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[half]
	}
	return (sorted[half-1] + sorted[half]) / 2
}

func round(value float64, digits int) float64 {
	scale := math.Pow10(digits)
	return math.Round(value*scale) / scale
}
