package pipeline

import "testing"

// A command that a message names is pasted as it stands: it has to be of the same
// pipeline, also where that has a name of its own, as behind every new beginning.
func TestNamedCommandsAreOfThisPipeline(t *testing.T) {
	for _, c := range []struct{ pipeline, want string }{
		{"bank.bank_outbox_slot", "--slot bank_outbox_slot"}, // what follows from database and slot
		{"bank.bank_outbox_slot-2", "--slot bank_outbox_slot --pipeline bank.bank_outbox_slot-2"},
		{"payments", "--slot bank_outbox_slot --pipeline payments"},
	} {
		cfg := Config{Pipeline: c.pipeline, Slot: "bank_outbox_slot"}
		if got := cfg.Named(); got != c.want {
			t.Errorf("%s: %s, want %s", c.pipeline, got, c.want)
		}
	}
}
