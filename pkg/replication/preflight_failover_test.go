package replication

import (
	"strings"
	"testing"
)

// Findings about failover slots and standby servers, which only who asks for them gets.
func TestJudgeFailover(t *testing.T) {
	slot, standby := bankSpec, bankSpec
	slot.Failover, standby.FromStandby = true, true
	following := func(f *facts) {
		f.slot.Failover, f.standbySlots, f.followers = true, "standby_1", []follower{{"standby_1", true, true}}
	}
	inRecovery := func(f *facts) { f.inRecovery, f.feedback, f.primarySlot = true, true, "standby_1" }
	for _, c := range []struct {
		name   string
		spec   Spec
		change func(f *facts)
		want   []string
	}{
		{"all set up", slot, following, nil},
		{"a failover slot that nobody asked for is looked after", bankSpec, func(f *facts) { following(f); f.standbySlots = "" }, []string{"warn failover: synchronized_standby_slots is empty"}},
		{"too old", slot, func(f *facts) { f.version = 160009 }, []string{"fail slot bank_outbox_slot: --slot-failover: failover slots need PostgreSQL 17 or newer, this server is 16"}},
		{"no failover slot yet", slot, func(f *facts) { following(f); f.slot.Failover = false }, []string{"warn slot bank_outbox_slot: it is no failover slot"}},
		{"no standby", slot, func(f *facts) { f.slot.Failover = true }, []string{"warn failover: no standby server", "warn failover: synchronized_standby_slots is empty"}},
		{"no feedback", slot, func(f *facts) { following(f); f.followers[0].feedback = false }, []string{"warn failover: the standby server on slot standby_1 sends no feedback"}},
		{"a standby that is gone", slot, func(f *facts) { following(f); f.standbySlots = `standby_1, "standby_2"` }, []string{"warn failover: synchronized_standby_slots names standby_2, which is no physical slot"}},
		{"a standby that is down", slot, func(f *facts) { following(f); f.followers[0].active = false }, []string{"warn failover: synchronized_standby_slots names standby_1, by which no standby server follows"}},
		{"from a standby", standby, inRecovery, nil},
		{"from a standby, promoted", standby, func(*facts) {}, nil},
		{"from a standby, too old", standby, func(f *facts) { inRecovery(f); f.version = 150018 }, []string{"fail standby: --from-standby: PostgreSQL 16 is the first"}},
		{"from a standby without feedback", standby, func(f *facts) { inRecovery(f); f.feedback = false }, []string{"warn standby: hot_standby_feedback is off"}},
		{"from a standby without a slot on its primary", standby, func(f *facts) { inRecovery(f); f.primarySlot = "" }, []string{"warn standby: it follows its primary without a slot"}},
		{"from a standby, a copied slot", standby, func(f *facts) {
			inRecovery(f)
			f.slot.Failover, f.slot.Synced, f.slot.InRecovery = true, true, true
		}, []string{"fail slot bank_outbox_slot: it is a copy of the primary's slot"}},
		{"from a standby, without the publication", standby, func(f *facts) {
			inRecovery(f)
			f.slot, f.publication = SlotInfo{}, PublicationInfo{}
		}, []string{"fail publication bank_outbox_pub: it is not there, and a server in recovery cannot make it"}},
	} {
		f := goodFacts()
		c.change(&f)
		got := notOK(f.judge(c.spec))
		if len(got) != len(c.want) {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
			continue
		}
		for i, line := range got {
			if !strings.HasPrefix(line, c.want[i]) {
				t.Errorf("%s: %q, want %q", c.name, line, c.want[i])
			}
		}
	}
}
