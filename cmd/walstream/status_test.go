package main

import (
	"strings"
	"testing"
)

// Of a slot that was lost to a limit nobody says that there is none.
func TestWhatALostSlotKeeps(t *testing.T) {
	room, kept := int64(1<<20), int64(4096)
	for want, slot := range map[string]*slotView{
		"none, wal_status lost":                       {Exists: true, WALStatus: "lost"},
		"4.0 KiB, wal_status reserved, no limit":      {Exists: true, WALStatus: "reserved", RetainedBytes: &kept},
		"wal_status extended, 1.0 MiB until the slot": {Exists: true, WALStatus: "extended", RetainedBytes: &kept, SafeWALBytes: &room},
		unknown: {},
	} {
		if text := (&statusView{Slot: slot}).kept(); !strings.Contains(text, want) {
			t.Errorf("%q, want %q", text, want)
		}
	}
}

// The message of a lost slot has two names. With the old one in --pipeline, too,
// the audit would wait for a checkpoint that never moves.
func TestAnAuditHasAnotherEarlierPipeline(t *testing.T) {
	c := &Config{}
	c.Pipeline = "bank-2"
	_, err := auditConfig(c, &Audit{Earlier: []string{"bank", "bank-2"}}, streams{})
	if exitCode(err) != exitConfig || !strings.Contains(err.Error(), "--pipeline") {
		t.Errorf("%v, exit code %d", err, exitCode(err))
	}
}
