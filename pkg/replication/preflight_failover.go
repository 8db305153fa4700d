package replication

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
)

const (
	// standbyVersion is the first that decodes on a standby server.
	standbyVersion = 160000
	// failoverVersion is the first with failover slots.
	failoverVersion = 170000
)

// follower is a physical slot, by which a standby server follows.
type follower struct {
	name   string
	active bool
	// feedback: it holds back the oldest transaction of its standby's, as
	// hot_standby_feedback has it.
	feedback bool
}

const followersQuery = `
SELECT slot_name::text, active, xmin IS NOT NULL OR catalog_xmin IS NOT NULL FROM pg_replication_slots
WHERE slot_type = 'physical' AND NOT temporary ORDER BY 1`

func lookupFollowers(ctx context.Context, conn *pgx.Conn) ([]follower, error) {
	rows, err := conn.Query(ctx, followersQuery)
	var found []follower
	if err == nil {
		found, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (p follower, err error) {
			err = row.Scan(&p.name, &p.active, &p.feedback)
			return p, err
		})
	}
	if err != nil {
		return nil, fmt.Errorf("look up the standby servers' slots: %w", classify(err))
	}
	return found, nil
}

// onStandby are the settings without which a standby server copies no slot, and
// which nobody can see from its primary.
const onStandby = "on the standby server: sync_replication_slots = on, hot_standby_feedback = on, primary_slot_name = '<its slot>' and dbname= in primary_conninfo; " +
	"there SELECT synced, temporary, invalidation_reason FROM pg_replication_slots; says whether it has the slot"

// judgeFailover: what a failover slot needs beside itself, as far as the primary
// shows it.
func (f *facts) judgeFailover(spec Spec) []Finding {
	const name = "failover"
	if f.inRecovery || f.version < failoverVersion || !spec.Failover && !f.slot.Failover {
		return nil
	}
	var found []Finding
	followers := map[string]follower{}
	for _, p := range f.followers {
		followers[p.name] = p
		if p.active && !p.feedback {
			found = append(found, warn(name, fmt.Sprintf("the standby server on slot %s sends no feedback: without hot_standby_feedback it copies no slot", p.name), onStandby))
		}
	}
	if len(followers) == 0 {
		found = append(found, warn(name, "no standby server has a physical slot here, without which none copies the failover slot", onStandby))
	}
	names := standbySlotNames(f.standbySlots)
	for _, wanted := range names {
		p, there := followers[wanted]
		switch {
		case !there:
			found = append(found, warn(name, fmt.Sprintf("synchronized_standby_slots names %s, which is no physical slot of this server: no row is sent until it is", wanted),
				fmt.Sprintf("SELECT pg_create_physical_replication_slot(%s, true); for its standby server, or take it out: ALTER SYSTEM SET synchronized_standby_slots = '...'; SELECT pg_reload_conf();", quoteLiteral(wanted))))
		case !p.active:
			found = append(found, warn(name, fmt.Sprintf("synchronized_standby_slots names %s, by which no standby server follows at the moment: no row is sent until one does", wanted),
				"start that standby server, or take it out: ALTER SYSTEM SET synchronized_standby_slots = '...'; SELECT pg_reload_conf();"))
		}
	}
	if len(names) == 0 {
		found = append(found, warn(name, "synchronized_standby_slots is empty: Kafka can be ahead of the standby servers, and a failover then loses rows that are published",
			"ALTER SYSTEM SET synchronized_standby_slots = '<physical slot of the standby server that takes over>'; SELECT pg_reload_conf();"))
	}
	if len(found) == 0 {
		found = append(found, ok(name, "rows are sent once the standby servers of "+strings.Join(names, ", ")+" have them; whether these copy the slot is to be seen there only"))
	}
	return found
}

// standbySlotNames reads a list of slot names.
func standbySlotNames(setting string) (names []string) {
	for part := range strings.SplitSeq(setting, ",") {
		if part = strings.Trim(strings.TrimSpace(part), `"`); part != "" && part != "*" {
			names = append(names, part)
		}
	}
	return names
}

// judgeDecodingStandby: a server in recovery that is to be streamed from.
func (f *facts) judgeDecodingStandby() Finding {
	const name = "standby"
	switch {
	case f.version < standbyVersion:
		old := fail(name, fmt.Sprintf("--from-standby: PostgreSQL 16 is the first that streams rows from a server in recovery, this one is %d", f.version/10000),
			"connect to the primary, without --from-standby")
		old.Err = ErrInRecovery
		return old
	case !f.feedback:
		return warn(name, "hot_standby_feedback is off: the primary's vacuum can take away what the slot here needs, and the slot is then lost",
			"ALTER SYSTEM SET hot_standby_feedback = on; SELECT pg_reload_conf(); -- on this server")
	case f.primarySlot == "":
		return warn(name, "it follows its primary without a slot (primary_slot_name): while the two are parted, the primary's vacuum can take away what the slot here needs, and the slot is then lost",
			"on the primary SELECT pg_create_physical_replication_slot('<name>'); here ALTER SYSTEM SET primary_slot_name = '<name>'; SELECT pg_reload_conf();")
	}
	return ok(name, "the server is in recovery, and follows its primary by slot "+f.primarySlot)
}
