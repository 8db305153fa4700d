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
}

// report is what a run found, and where: the raw results.
type report struct {
	When     time.Time         `json:"when"`
	Machine  map[string]string `json:"machine"`
	Versions map[string]string `json:"versions"`
	Work     map[string]int    `json:"work"`
	Samples  []sample          `json:"samples"`
	Line     line              `json:"line"`
}

func newReport(ctx context.Context, w *world, all []contender) *report {
	r := &report{
		When: time.Now().UTC().Truncate(time.Second), Machine: machine(),
		Work:     map[string]int{"rows": w.rows, "bytes": payloadSize, "rows_per_transaction": perTx, "partitions": partitions, "rounds": w.rounds},
		Versions: map[string]string{"go": runtime.Version()},
	}
	for _, c := range all {
		r.Versions[c.name()] = c.version(ctx)
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
}

// ratio of two contenders' rates: the median of the rounds'.
func (r *report) ratio(a, b string) float64 {
	over, under := r.of(a, sample.rate), r.of(b, sample.rate)
	var ratios []float64
	for i := range over {
		ratios = append(ratios, over[i]/under[i])
	}
	return round(median(ratios), 2)
}

func (s sample) rate() float64      { return s.Rate }
func (s sample) cpu() float64       { return s.CPU }
func (s sample) walsender() float64 { return s.WalsenderCPU }
func (s sample) peak() float64      { return s.PeakRSS }

// print shows medians and ranges to people.
func (r *report) print(out io.Writer) {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "contender\trows/s\tCPU s per million\twalsender\tpeak RSS MB")
	for _, name := range []string{nameWalstream, nameRecvlogical, nameExactlyOnce} {
		if len(r.of(name, sample.rate)) == 0 {
			continue
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\n", name, spread(r.of(name, sample.rate), 0), spread(r.of(name, sample.cpu), 2),
			spread(r.of(name, sample.walsender), 2), spread(r.of(name, sample.peak), 0))
	}
	_ = table.Flush() // to stderr: there is nobody to tell
	fmt.Fprintf(out, "%d rows of %d bytes, %d rounds; median [range]; %s x %s\n",
		r.Work["rows"], r.Work["bytes"], r.Line.Rounds, r.Machine["cpus"], r.Machine["cpu"])
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
	if len(values) == 0 {
		return "not run"
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
