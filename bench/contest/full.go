package main

import (
	"context"

	"github.com/walstream/walstream/internal/testenv"
)

// leg of make bench: what is drained, how often, and by whom. A round of the
// slow contenders takes as long as ten of the others, so they are in fewer of them
// where their figures are not what the work is for.
type leg struct {
	work   work
	rounds int
	// Every so manyth round is drained by Debezium, tuned, and by its other two;
	// 0: none.
	tuned, others int
}

// legs of a run: 1 KB in transactions of 100 and of 1 are what the goals are said
// for, so all pairs are there in each round.
func legs(o options) []leg {
	rows, rounds := o.rows, o.rounds
	side, corner := max(1, rounds/3), max(1, rounds/4)
	size := func(bytes, perTx, rows int) work {
		job := usual(rows, perTx)
		job.Bytes = bytes
		return job
	}
	return []leg{
		{work: size(1024, 100, rows), rounds: rounds, tuned: 1, others: 3},
		{work: size(1024, 1, rows/2), rounds: rounds, tuned: 1, others: 3},
		{work: size(1024, 10_000, rows), rounds: side, tuned: side, others: side},
		{work: size(256, 100, rows), rounds: side, tuned: side, others: side},
		{work: size(4096, 100, rows/2), rounds: side, tuned: side, others: side},
		{work: size(256, 1, rows/2), rounds: corner, tuned: corner},
		{work: size(256, 10_000, rows), rounds: corner, tuned: corner},
		{work: size(4096, 1, rows/3), rounds: corner, tuned: corner},
		{work: size(4096, 10_000, rows/2), rounds: corner, tuned: corner},
	}
}

// takesPart says who is in a round; the first is everybody's.
func (l leg) takesPart(c contender, round int) bool {
	every := 1
	if c, ok := c.(debezium); ok {
		every = l.others
		if c.name() == nameDebeziumWell {
			every = l.tuned
		}
	}
	return every > 0 && (round-1)%every == 0
}

// full is make bench: all contenders, all sizes, then latency and rest.
func full(ctx context.Context, w *world, r *report, f *field) error {
	return run(ctx, w, r, f, legs(w.options))
}

func run(ctx context.Context, w *world, r *report, f *field, all []leg) error {
	for _, l := range all {
		d, err := drainAll(ctx, w, l.work, f.all, l.rounds, l.takesPart)
		if err != nil {
			return err
		}
		r.Drains = append(r.Drains, d)
	}
	var plain []contender
	for _, c := range f.all {
		if ours, ok := c.(walstream); !ok || !ours.socket {
			plain = append(plain, c)
		}
	}
	return follow(ctx, w, r, plain, max(1, w.rounds/3), w.pace)
}

// fullField is everybody; who cannot be had is named.
func fullField(ctx context.Context, o options, pg *testenv.Postgres) (*field, error) {
	f := &field{}
	f.add(walstream{binary: o.binary, delivery: "at-least-once", compression: "none"},
		walstream{binary: o.binary, delivery: "exactly-once", compression: "none"})
	client, err := findRecvlogical(ctx, o.recvlogical, pg.BinDir)
	if err != nil {
		f.without(err, nameRecvlogical, nameRecvBinary, nameRecvBinary+overSocket)
	} else {
		f.add(recvlogical{program: client}, recvlogical{program: client, binary: true})
	}
	f.addSockets(o, pg, client)
	return f, f.addDebeziums(ctx, o.others)
}
