package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"
)

// failover kills the primary under load, and promotes a standby server that had not
// received everything.
func (d *drill) failover(ctx context.Context) error {
	primary, standby := d.server, d.standby
	stop, err := d.write(ctx)
	if err != nil {
		return err
	}
	if err := sleep(ctx, d.load); err != nil {
		return err
	}
	if err := standby.CaughtUp(ctx, primary); err != nil {
		return err
	}
	if err := standby.Exec(ctx, "", `ALTER SYSTEM SET primary_conninfo = ''`, `SELECT pg_reload_conf()`); err != nil {
		return err
	}
	if err := sleep(ctx, cutOff); err != nil {
		return err
	}
	began := time.Now()
	if err := primary.Kill(); err != nil {
		return err
	}
	acknowledged := stop()
	if err := standby.Promote(ctx); err != nil {
		return err
	}
	d.report.Times["promote"] = seconds(time.Since(began))
	d.flow.Kill() // it looks for the old primary
	d.server = standby
	if err := d.connect(ctx); err != nil {
		return err
	}
	there, err := d.table(ctx)
	if err != nil {
		return err
	}
	lost := 0
	for _, id := range acknowledged {
		if !there[id] {
			lost++
		}
	}
	d.say("failover: of %d rows acknowledged the primary took %d with it", len(acknowledged), lost)
	if lost == 0 {
		return errors.New("the failover lost nothing, and proves nothing")
	}
	if err := d.under(ctx, d.load/4); err != nil { // before anybody makes a slot
		return err
	}
	return d.recover(ctx, "failover", true, nil)
}

// loseKafka deletes the topic; the slot is as it was.
func (d *drill) loseKafka(ctx context.Context) error {
	if err := d.under(ctx, d.load/2); err != nil {
		return err
	}
	if err := d.flow.Stop(20 * time.Second); err != nil {
		return err
	}
	published, err := d.inTopic(ctx)
	if err != nil {
		return err
	}
	if err := d.under(ctx, d.load/4); err != nil {
		return err
	}
	left, err := d.table(ctx)
	if err != nil {
		return err
	}
	maps.DeleteFunc(left, func(id string, _ bool) bool { return published[id] != "" })
	if _, err := d.admin.DeleteTopic(ctx, topic); err != nil {
		return err
	}
	for {
		topics, err := d.admin.ListTopics(ctx)
		if err != nil {
			return fmt.Errorf("list the topics: %w", err)
		}
		if !topics.Has(topic) {
			break
		}
		if err := sleep(ctx, 100*time.Millisecond); err != nil {
			return err
		}
	}
	return d.recover(ctx, "kafka", false, left, "--all-rows")
}

// loseSlot drops it under rows that come.
func (d *drill) loseSlot(ctx context.Context) error {
	if err := d.flow.Stop(20 * time.Second); err != nil {
		return err
	}
	if err := d.under(ctx, d.load/4); err != nil {
		return err
	}
	if _, err := d.db.Exec(ctx, `SELECT pg_drop_replication_slot($1)`, slotName); err != nil {
		return err
	}
	if err := d.under(ctx, d.load/4); err != nil {
		return err
	}
	return d.recover(ctx, "slot", true, nil)
}

func sleep(ctx context.Context, t time.Duration) error {
	select {
	case <-time.After(t):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
