package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// page is what the raw results say, in Markdown.
func (r *report) page() string {
	var out strings.Builder
	r.overview(&out)
	for _, d := range r.Drains {
		fmt.Fprintf(&out, "### Drain: %s\n\n", d.Work)
		d.table(&out)
		if d.versus(&out, nameWalstream, nameExactlyOnce) {
			d.versus(&out, nameWalstream+overSocket, nameExactlyOnce+overSocket)
		}
	}
	r.latencyTable(&out)
	r.idleTable(&out)
	for _, name := range slices.Sorted(maps.Keys(r.NotRun)) {
		fmt.Fprintf(&out, "Not run: %s: %s.\n\n", name, strings.Join(strings.Fields(r.NotRun[name]), " "))
	}
	if err := r.err(); err != nil {
		fmt.Fprintf(&out, "%v\n\n", err)
	}
	fmt.Fprintf(&out, "Median [range] over the rounds, ratios within a round. %s × %s, %s; %s.\n",
		r.Machine["cpus"], r.Machine["cpu"], r.Machine["memory"], r.When.Format("2 January 2006"))
	return out.String()
}

// row writes one of a table.
func row(out *strings.Builder, cells ...string) {
	fmt.Fprintf(out, "| %s |\n", strings.Join(cells, " | "))
}

func head(out *strings.Builder, cells ...string) {
	row(out, cells...)
	rule := slices.Repeat([]string{"--:"}, len(cells))
	rule[0] = "---"
	row(out, rule...)
}

// column is a figure of a drain's table.
type column struct {
	title  string
	digits int
	figure func(sample) float64
}

var columns = []column{
	{"rows/s", 0, sample.rate},
	{"CPU s per million", 2, sample.cpu},
	{"walsender", 2, sample.walsender},
	{"broker", 2, sample.broker},
	{"walsender busy", 2, sample.busy},
	{"peak MB", 0, sample.peak},
	{"s to first record", 2, sample.first},
	{"last third: rows/s", 0, sample.warmRate},
	{"CPU s per million", 2, sample.warmCPU},
	{"bytes/row on disk", 0, sample.stored},
}

// names of the contenders, in the order in which they first came.
func (d *drained) names() (names []string) {
	for _, s := range d.Samples {
		if !slices.Contains(names, s.Contender) {
			names = append(names, s.Contender)
		}
	}
	return names
}

func (d *drained) table(out *strings.Builder) {
	titles := []string{"contender"}
	for _, c := range columns {
		titles = append(titles, c.title)
	}
	head(out, append(titles, "rounds")...)
	for _, name := range d.names() {
		cells := []string{name}
		for _, c := range columns {
			cells = append(cells, spread(d.values(name, c.figure), c.digits))
		}
		row(out, append(cells, fmt.Sprint(len(d.of(name, sample.rate))))...)
	}
	out.WriteString("\n")
}

// versus sets two of walstream's contenders against all others; false when there
// is nobody to set them against.
func (d *drained) versus(out *strings.Builder, alo, eo string) bool {
	names := slices.DeleteFunc(d.names(), func(name string) bool { return name == eo })
	if !slices.Contains(names, alo) || len(names) == 0 {
		return false
	}
	short := func(name string) string { return strings.TrimPrefix(name, "walstream, ") }
	head(out, "rows/s over those of", short(alo), short(eo), "its last third: "+short(alo), short(eo), "CPU over its last third's: "+short(alo), short(eo))
	for _, name := range names {
		cells := []string{name}
		for _, figures := range [][2]func(sample) float64{{sample.rate, sample.rate}, {sample.rate, sample.warmRate}, {sample.cpu, sample.warmCPU}} {
			for _, ours := range []string{alo, eo} {
				ratios := d.pairs(ours, figures[0], name, figures[1])
				if ours == name {
					ratios = nil
				}
				cells = append(cells, spread(ratios, 2))
			}
		}
		row(out, cells...)
	}
	out.WriteString("\n")
	return true
}

func (r *report) latencyTable(out *strings.Builder) {
	if len(r.Latencies) == 0 {
		return
	}
	out.WriteString("### Latency: commit to a read_committed consumer, single-row transactions of 1 KB, ms\n\n")
	head(out, "contender", "rows/s asked for", "written", "p50", "p99", "p99.9", "max")
	for _, at := range r.latencies() {
		row(out, at.name, fmt.Sprint(at.rate), spread(at.values(func(l latency) float64 { return l.Written }), 0),
			spread(at.values(func(l latency) float64 { return l.P50 }), 1), spread(at.values(func(l latency) float64 { return l.P99 }), 1),
			spread(at.values(func(l latency) float64 { return l.P999 }), 1), spread(at.values(func(l latency) float64 { return l.Max }), 1))
	}
	out.WriteString("\n")
}

func (r *report) idleTable(out *strings.Builder) {
	if len(r.Idle) == 0 {
		return
	}
	out.WriteString("### Idle\n\n")
	head(out, "contender", "CPU, % of one", "memory MB")
	var names []string
	for _, i := range r.Idle {
		if !slices.Contains(names, i.Contender) {
			names = append(names, i.Contender)
		}
	}
	for _, name := range names {
		var cpu, memory []float64
		for _, i := range r.Idle {
			if i.Contender == name {
				cpu, memory = append(cpu, i.CPU), append(memory, i.RSS)
			}
		}
		row(out, name, spread(cpu, 2), spread(memory, 0))
	}
	out.WriteString("\n")
}

// latencies of one contender at one rate, over the rounds.
type latencies struct {
	name string
	rate int
	all  []latency
}

func (l *latencies) values(figure func(latency) float64) (values []float64) {
	for _, one := range l.all {
		values = append(values, figure(one))
	}
	return values
}

// latencies are grouped by rate, then by contender, as they first came.
func (r *report) latencies() (groups []*latencies) {
	for _, l := range r.Latencies {
		at := slices.IndexFunc(groups, func(g *latencies) bool { return g.name == l.Contender && g.rate == l.Rate })
		if at < 0 {
			at = len(groups)
			groups = append(groups, &latencies{name: l.Contender, rate: l.Rate})
		}
		groups[at].all = append(groups[at].all, l)
	}
	slices.SortStableFunc(groups, func(a, b *latencies) int { return a.rate - b.rate })
	return groups
}
