package main

import (
	"context"
	"slices"

	"github.com/walstream/walstream/internal/testenv"
)

// line is what make bench-quick prints.
type line struct {
	Text          float64 `json:"alo_vs_recvlogical_text"` // median of the rounds' ratios, as all ratios
	Binary        float64 `json:"alo_vs_recvlogical_binary"`
	ExactlyOnce   float64 `json:"eo_vs_alo"`
	CPU           float64 `json:"cpu_s_per_million"` // of walstream, at-least-once, median
	WalsenderBusy float64 `json:"walsender_busy"`    // its share of the time of those drains, median
	PeakRSS       float64 `json:"peak_rss_mb"`       // of walstream in either delivery, the highest
	Rounds        int     `json:"rounds"`
	// Against Debezium, tuned, when it ran: rates over the whole drain, rates over
	// the last third, and CPU of the whole drain over Debezium's of the last third.
	Debezium     float64 `json:"alo_vs_debezium_tuned,omitempty"`
	DebeziumWarm float64 `json:"alo_vs_debezium_tuned_warm,omitempty"`
	DebeziumCPU  float64 `json:"cpu_vs_debezium_tuned_warm,omitempty"`
}

func (d *drained) line() *line {
	ratio := func(a string, x func(sample) float64, b string, y func(sample) float64) float64 {
		return round(median(d.pairs(a, x, b, y)), 3)
	}
	l := &line{
		Text:          ratio(nameWalstream, sample.rate, nameRecvlogical, sample.rate),
		Binary:        ratio(nameWalstream, sample.rate, nameRecvBinary, sample.rate),
		ExactlyOnce:   ratio(nameExactlyOnce, sample.rate, nameWalstream, sample.rate),
		CPU:           round(median(d.values(nameWalstream, sample.cpu)), 2),
		WalsenderBusy: round(median(d.values(nameWalstream, sample.busy)), 3),
		Rounds:        len(d.of(nameWalstream, sample.rate)),
		Debezium:      ratio(nameWalstream, sample.rate, nameDebeziumWell, sample.rate),
		DebeziumWarm:  ratio(nameWalstream, sample.warmRate, nameDebeziumWell, sample.warmRate),
		DebeziumCPU:   ratio(nameWalstream, sample.cpu, nameDebeziumWell, sample.warmCPU),
	}
	for _, name := range []string{nameWalstream, nameExactlyOnce} {
		for _, peak := range d.values(name, sample.peak) {
			l.PeakRSS = max(l.PeakRSS, round(peak, 1))
		}
	}
	return l
}

// quick is one work: walstream in both deliveries beside pg_recvlogical, text and
// binary, and who else is asked for.
func quick(ctx context.Context, w *world, r *report, f *field) error {
	job := usual(w.rows, w.perTx)
	job.Bytes = w.bytes
	d, err := drainAll(ctx, w, job, f.all, w.rounds, everyRound)
	if err != nil {
		return err
	}
	r.Drains = append(r.Drains, d)
	r.Line = d.line()
	return nil
}

// quickField: without pg_recvlogical there is nothing to compare with.
func quickField(ctx context.Context, o options, pg *testenv.Postgres) (*field, error) {
	client, err := findRecvlogical(ctx, o.recvlogical, pg.BinDir)
	if err != nil {
		return nil, err
	}
	f := &field{}
	f.add(walstream{binary: o.binary, delivery: "at-least-once", compression: "none"}, recvlogical{program: client},
		walstream{binary: o.binary, delivery: "exactly-once", compression: "none"}, recvlogical{program: client, binary: true})
	others := slices.DeleteFunc(o.others, func(word string) bool { return word == "socket" })
	if len(others) < len(o.others) {
		f.addSockets(o, pg, client)
	}
	return f, f.addDebeziums(ctx, others)
}
