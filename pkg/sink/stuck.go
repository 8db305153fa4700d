package sink

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/walstream/walstream/pkg/repeat"
)

// stuckTime without any acknowledgement, while rows wait for one, is when the
// cluster is asked why. A broker that answers "not enough replicas" is asked again
// without end, and the client tells nobody.
const stuckTime = time.Second

// stuckCalm ends a time in which rows were stuck now and then, for the log.
const stuckCalm = time.Minute

const settingInSync = "min.insync.replicas"

// stuck notices that rows wait for their acknowledgement and none comes.
type stuck struct {
	sent  atomic.Int64 // rows passed on
	acked int64        // of them, when last looked; the lookout's own
	since time.Time    // of the last acknowledgement; likewise
	// trouble is what was found, for the log; likewise.
	trouble repeat.Episode
}

// lookIfStuck finds out why nothing is acknowledged, for Trouble to tell.
func (l *lookout) lookIfStuck(ctx context.Context, now time.Time) {
	acked := l.box.acknowledged()
	if acked != l.stuck.acked || acked == l.stuck.sent.Load() {
		if well := acked != l.stuck.acked && l.stuck.trouble.Well(now); well || l.stuck.trouble.Over(now) {
			l.k.log.Info().Stringer("after", l.stuck.trouble.Lasted(now).Round(time.Second)).Msg("kafka acknowledges again: rows go on")
		}
		l.stuck.acked, l.stuck.since = acked, now
		l.k.stuck.Store(nil)
		return
	}
	if now.Sub(l.stuck.since) < stuckTime {
		return
	}
	why := l.whyStuck(ctx)
	if why == "" { // no broker answers, or nobody knows
		l.k.stuck.Store(nil)
		why = l.k.conns.last()
	} else {
		l.k.stuck.Store(&why)
	}
	if why != "" && l.stuck.trouble.Trouble(why, now) {
		l.k.log.Warn().Str("reason", why).Int64("rows", l.stuck.sent.Load()-acked).Stringer("for", now.Sub(l.stuck.since).Round(time.Second)).
			Msg("kafka acknowledges nothing: rows wait")
	}
}

// whyStuck looks at the topics in use; empty when they are in order, or when no
// broker answers, which is known otherwise.
func (l *lookout) whyStuck(ctx context.Context) string {
	ctx, cancel := context.WithTimeout(ctx, stuckTime)
	defer cancel()
	names := slices.Sorted(maps.Keys(l.topics))
	names = append(names, l.k.cfg.checkpointTopic())
	resp, err := l.k.metadata(ctx, names)
	if err != nil {
		return ""
	}
	settings, _, err := l.k.configs(ctx, names, settingInSync)
	if err != nil {
		return ""
	}
	for i := range resp.Topics {
		topic := &resp.Topics[i]
		if topic.Topic == nil {
			continue
		}
		wanted, _ := strconv.Atoi(settings[*topic.Topic][settingInSync]) // 0 when it may not be read
		for j := range topic.Partitions {
			if why := whyPartitionStuck(*topic.Topic, &topic.Partitions[j], wanted); why != "" {
				return why
			}
		}
	}
	if why := l.k.conns.produce.Load(); why != nil {
		return *why
	}
	return ""
}

func whyPartitionStuck(topic string, p *kmsg.MetadataResponseTopicPartition, wanted int) string {
	switch {
	case p.Leader < 0:
		return fmt.Sprintf("partition %d of topic %q has no leader: start the brokers of its replicas %v", p.Partition, topic, p.Replicas)
	case len(p.ISR) < wanted:
		return fmt.Sprintf("partition %d of topic %q has %d of its replicas %v in sync, and %s is %d: start the brokers of the others, or lower it",
			p.Partition, topic, len(p.ISR), p.Replicas, settingInSync, wanted)
	}
	return ""
}
