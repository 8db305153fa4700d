package replication

import (
	"fmt"
	"time"

	"github.com/dustin/go-humanize"
)

// judgeRewind weighs what a trailing slot takes. Nothing of it is in the way of the
// stream.
func (f *facts) judgeRewind(spec Spec) []Finding {
	found := []Finding{f.judgeRewindSlots(spec)}
	const name = "rewind window"
	if timeout := time.Duration(f.idleSlotTimeout) * time.Second; timeout > 0 && timeout < spec.Rewind {
		found = append(found, warn(name,
			fmt.Sprintf("the server gives up slots that nobody uses for %s, less than the window of %s: it does so with the rewind slot when walstream is stopped for so long", timeout, spec.Rewind),
			"ALTER SYSTEM SET idle_replication_slot_timeout = 0; SELECT pg_reload_conf();"))
	}
	keep := int64(f.maxSlotWAL) << 20
	switch {
	case f.maxSlotWAL < 0:
	case spec.RewindMax > 0 && keep < spec.RewindMax:
		found = append(found, warn(name,
			fmt.Sprintf("max_slot_wal_keep_size of %s is less than --rewind-max of %s: the rewind slot is moved on, and given up, near the smaller one",
				humanize.IBytes(uint64(keep)), humanize.IBytes(uint64(spec.RewindMax))),
			"lower --rewind-max, or, where the disk has room, raise max_slot_wal_keep_size (it takes a reload only)"))
	case spec.RewindMax == 0:
		found = append(found, warn(name,
			fmt.Sprintf("max_slot_wal_keep_size of %s is what bounds it: the rewind slot is moved on, and given up, near that", humanize.IBytes(uint64(keep))),
			"say by --rewind-max how much WAL the window may keep"))
	}
	return found
}

// judgeRewindSlots: one to stream from, one that trails it, one for a replay while
// that runs.
func (f *facts) judgeRewindSlots(spec Spec) Finding {
	name := "rewind slot " + f.rewind.Slot.Name
	if s := &f.rewind.Slot; s.Exists && !f.rewind.Ours(f.rights.Database) {
		return warn(name, fmt.Sprintf("it is not one that walstream made (%s, plugin %q, database %q): there is no rewind", s.Type, s.Plugin, s.Database),
			"give --slot another name, or drop that slot")
	}
	wanted := 1 // replay's
	for _, exists := range []bool{f.slot.Exists, f.rewind.Slot.Exists} {
		if !exists {
			wanted++
		}
	}
	detail := "trails the slot by up to " + spec.Rewind.String()
	if !f.rewind.Slot.Exists {
		detail = "is made at the next start; it will trail the slot by up to " + spec.Rewind.String()
	}
	if free := f.maxSlots - f.slots; free < wanted {
		return warn(name, fmt.Sprintf("%s, but of max_replication_slots %d are free and %d are wanted: for the stream, for the rewind slot, and for a replay while it runs", detail, max(free, 0), wanted),
			fmt.Sprintf("drop a slot that nobody uses, or ALTER SYSTEM SET max_replication_slots = %d; -- then restart the server", f.maxSlots+wanted-free))
	}
	return ok(name, detail)
}
