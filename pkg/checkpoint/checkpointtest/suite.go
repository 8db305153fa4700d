// Package checkpointtest is the suite that every checkpoint.Store passes.
package checkpointtest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/walstream/walstream/pkg/checkpoint"
)

// Written is a store whose records the suite can write.
type Written struct {
	checkpoint.Store
	// Pipeline the store reads for.
	Pipeline string
	// Version is what the writer puts into the record.
	Version string
	// Write makes a record durable.
	Write func(ctx context.Context, record checkpoint.Record) error
}

// Run tests a store; make returns an empty one each time.
func Run(t *testing.T, make func(t *testing.T) Written) {
	t.Run("empty", func(t *testing.T) {
		expect(t, make(t), nil)
	})
	t.Run("the newest counts, with every field", func(t *testing.T) {
		s := make(t)
		for _, record := range records(s) {
			write(t, s, record)
			expect(t, s, &record)
			expect(t, s, &record) // reading changes nothing
		}
	})
	t.Run("many", func(t *testing.T) {
		s := make(t)
		record := records(s)[0]
		for n := range 150 {
			record = record.With(checkpoint.Edge{Covered: record.Covered + 16, CommitLSN: record.Covered + 8, XID: uint32(n), CommitTime: time.Unix(int64(n), 0).UTC()})
			write(t, s, record)
		}
		expect(t, s, &record)
	})
}

func records(s Written) []checkpoint.Record {
	setup := checkpoint.Record{
		Format: checkpoint.FormatVersion, Pipeline: s.Pipeline, SystemID: "7412345678901234567", Timeline: 3, Database: "bänk",
		Slot: "bank_outbox_slot", Publication: "bank_outbox_pub", Delivery: "at-least-once", Phase: checkpoint.PhaseSetup,
		OptionsHash: "abc", Version: s.Version,
	}
	moved := setup.With(checkpoint.Edge{Covered: 0x16B3748, CommitLSN: 0x16B3718, XID: 4_000_000_000, CommitTime: time.Unix(1_700_000_000, 123_456_000).UTC()})
	split := moved
	split.Complete, split.Ordinal = false, 17
	idle := moved.With(checkpoint.Edge{Covered: 1 << 40, CommitLSN: 0x16B3718, XID: 4_000_000_000, CommitTime: moved.CommitTime})
	return []checkpoint.Record{setup, moved, split, idle}
}

func write(t *testing.T, s Written, record checkpoint.Record) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if err := s.Write(ctx, record); err != nil {
		t.Fatalf("write: %v", err)
	}
}

func expect(t *testing.T, s Written, want *checkpoint.Record) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	got, found, err := s.Load(ctx)
	if err != nil || found != (want != nil) {
		t.Fatalf("load: found %v, %v; want found %v", found, err, want != nil)
	}
	if want != nil && fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", *want) {
		t.Errorf("loaded\n%+v, want\n%+v", got, *want)
	}
}
