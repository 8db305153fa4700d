package replication

import (
	"slices"
	"strings"
	"testing"
	"time"
)

func TestJudgeRewind(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*facts, *Spec)
		want   []string
	}{
		{"made at the next start", func(*facts, *Spec) {}, []string{"ok rewind slot s_rewind"}},
		{"it is there", func(f *facts, _ *Spec) {
			f.rewind.Slot = SlotInfo{Name: "s_rewind", Exists: true, Type: "logical", Plugin: pgoutput, Database: "app"}
		}, []string{"ok rewind slot s_rewind"}},
		{"another's", func(f *facts, _ *Spec) { f.rewind.Slot = SlotInfo{Name: "s_rewind", Exists: true, Type: "physical"} }, []string{"warn rewind slot s_rewind"}},
		{"two slots are free of three", func(f *facts, _ *Spec) { f.slots = f.maxSlots - 2; f.slot.Exists = false }, []string{"warn rewind slot s_rewind"}},
		{"idle slots are given up sooner", func(f *facts, _ *Spec) { f.idleSlotTimeout = 1800 }, []string{"ok rewind slot s_rewind", "warn rewind window"}},
		{"idle slots are given up later", func(f *facts, _ *Spec) { f.idleSlotTimeout = 7200 }, []string{"ok rewind slot s_rewind"}},
		{"the server keeps less", func(f *facts, _ *Spec) { f.maxSlotWAL = 1024 }, []string{"ok rewind slot s_rewind", "warn rewind window"}},
		{"the server keeps more", func(f *facts, _ *Spec) { f.maxSlotWAL = 20 << 10 }, []string{"ok rewind slot s_rewind"}},
		{"only the server bounds it", func(f *facts, s *Spec) { f.maxSlotWAL, s.RewindMax = 1024, 0 }, []string{"ok rewind slot s_rewind", "warn rewind window"}},
	} {
		f, spec := facts{maxSlots: 10, slots: 2, maxSlotWAL: -1, rights: Rights{Database: "app"}}, Spec{Slot: "s", Rewind: time.Hour, RewindMax: 10 << 30}
		f.slot.Exists, f.rewind.Slot.Name = true, "s_rewind"
		c.change(&f, &spec)
		var got []string
		for _, finding := range f.judgeRewind(spec) {
			got = append(got, string(finding.Status)+" "+finding.Name)
			if finding.Status != StatusOK && finding.Remedy == "" {
				t.Errorf("%s: no remedy for %s", c.name, finding.Detail)
			}
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %s", c.name, strings.Join(got, ", "))
		}
	}
}
