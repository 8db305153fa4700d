package main

import "context"

// sizes of make bench-growth; 0 leaves a kind out.
type sizes struct {
	rows       []int // 256 B, 100 per transaction
	partitions []int
	topics     []int
	perTx      []int // transactions of so many rows, four of the largest
}

// growthWorks: one thing grows at a time.
func growthWorks(s sizes) (works []work) {
	small := func(rows, perTx, topics, partitions int) {
		works = append(works, work{Rows: rows, Bytes: 256, PerTx: perTx, Topics: topics, Partitions: partitions})
	}
	for _, rows := range s.rows {
		small(rows, 100, 1, 3)
	}
	base := s.rows[len(s.rows)/2]
	for _, partitions := range s.partitions {
		small(base, 100, 1, partitions)
	}
	for _, topics := range s.topics {
		small(base, 100, topics, 1)
	}
	for _, perTx := range s.perTx {
		small(max(base, perTx), perTx, 1, 3)
	}
	return works
}

// growth drains works of growing size in both deliveries.
func growth(ctx context.Context, w *world, r *report, f *field) error {
	return drainWorks(ctx, w, r, f, growthWorks(w.sizes))
}

// ownField is walstream alone, in both deliveries, for each compression.
func ownField(o options, compressions ...string) *field {
	f := &field{}
	for _, name := range compressions {
		f.add(walstream{binary: o.binary, delivery: "at-least-once", compression: name},
			walstream{binary: o.binary, delivery: "exactly-once", compression: name})
	}
	return f
}

// compression drains the same rows in each of its kinds.
func compression(ctx context.Context, w *world, r *report, f *field) error {
	job := usual(w.rows, w.perTx)
	job.Bytes = w.bytes
	return drainWorks(ctx, w, r, f, []work{job})
}

func drainWorks(ctx context.Context, w *world, r *report, f *field, works []work) error {
	for _, job := range works {
		d, err := drainAll(ctx, w, job, f.all, w.rounds, everyRound)
		if err != nil {
			return err
		}
		r.Drains = append(r.Drains, d)
	}
	return nil
}
