package main

import (
	"fmt"
	"strings"
)

// summary is the JSON line of a run of more than one work or contender: medians.
type summary struct {
	Drains    []summed           `json:"drains,omitempty"`
	Latencies map[string]latency `json:"latencies,omitempty"`
}

// summed is one work: its ratios, and each contender's medians.
type summed struct {
	Work    work     `json:"work"`
	Ratios  *line    `json:"ratios,omitempty"`
	Medians []sample `json:"medians"`
}

// result is what the program prints on stdout.
func (r *report) result() any {
	if r.Line != nil {
		return r.Line
	}
	latencies := map[string]latency{}
	for _, at := range r.latencies() {
		name := strings.NewReplacer("walstream, ", "", ", ", "_", "-", "_", " ", "_").Replace(strings.ToLower(at.name))
		latencies[fmt.Sprintf("%s_%d", name, at.rate)] = at.median()
	}
	if len(r.Drains) == 0 {
		return latencies
	}
	s := summary{Latencies: latencies}
	for _, d := range r.Drains {
		one := summed{Work: d.Work}
		for _, name := range d.names() {
			one.Medians = append(one.Medians, d.median(name))
			if name == nameRecvlogical || name == nameDebeziumWell {
				one.Ratios = d.line()
			}
		}
		s.Drains = append(s.Drains, one)
	}
	return s
}

func (d *drained) median(name string) sample {
	of := func(figure func(sample) float64) float64 { return round(median(d.values(name, figure)), 3) }
	return sample{
		Contender: name, Rate: of(sample.rate), CPU: of(sample.cpu), WalsenderCPU: of(sample.walsender), BrokerCPU: of(sample.broker),
		WalsenderBusy: of(sample.busy), PeakRSS: of(sample.peak), WarmRate: of(sample.warmRate), WarmCPU: of(sample.warmCPU),
		First: of(sample.first), Stored: of(sample.stored), Seconds: of(func(s sample) float64 { return s.Seconds }),
	}
}

func (l *latencies) median() latency {
	of := func(figure func(latency) float64) float64 { return round(median(l.values(figure)), 1) }
	return latency{
		Contender: l.name, Rate: l.rate, N: l.all[0].N, Written: of(func(l latency) float64 { return l.Written }),
		P50: of(func(l latency) float64 { return l.P50 }), P99: of(func(l latency) float64 { return l.P99 }),
		P999: of(func(l latency) float64 { return l.P999 }), Max: of(func(l latency) float64 { return l.Max }),
	}
}

// overview sets works beside each other: what grows with them, and what does not.
func (r *report) overview(out *strings.Builder) {
	if len(r.Drains) < 2 {
		return
	}
	out.WriteString("### All drains\n\n")
	head(out, "work", "contender", "rows/s", "CPU s per million", "walsender", "broker", "peak MB")
	for _, d := range r.Drains {
		for _, name := range d.names() {
			row(out, d.Work.String(), name, spread(d.values(name, sample.rate), 0), spread(d.values(name, sample.cpu), 2),
				spread(d.values(name, sample.walsender), 2), spread(d.values(name, sample.broker), 2), spread(d.values(name, sample.peak), 0))
		}
	}
	out.WriteString("\n")
}
