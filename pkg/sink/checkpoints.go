package sink

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/walstream/walstream/pkg/checkpoint"
)

// ensureCheckpointTopic makes the topic, or proves that the existing one keeps
// what is written to it.
func (k *Kafka) ensureCheckpointTopic(ctx context.Context) error {
	topic := k.cfg.checkpointTopic()
	const doing = "prepare the checkpoint topic"
	meta, found, err := k.lookUpOne(ctx, topic)
	if err != nil {
		return k.explain(err, doing, rightDescribe, topicResource(topic))
	}
	if !found {
		return k.explain(k.createOwn(ctx, topic), doing, rightCreate, topicResource(topic))
	}
	if n := len(meta.Partitions); n != 1 {
		return errPartitions(topic, n)
	}
	values, denied, err := k.configs(ctx, []string{topic}, settingCleanup)
	if err == nil {
		err = denied[topic]
	}
	if err != nil {
		return k.explain(err, doing, rightConfigs, topicResource(topic))
	}
	if policy := values[topic][settingCleanup]; policy != cleanupCompact {
		return k.errForgets(topic, policy)
	}
	return nil
}

func (k *Kafka) errForgets(topic, policy string) error {
	return &SetupError{
		Found:  fmt.Sprintf("topic %q has cleanup.policy=%s: Kafka would delete the checkpoint of a quiet pipeline", topic, policy),
		Remedy: k.cfg.command("kafka-configs", "--alter --topic %s --add-config cleanup.policy=compact", topic),
	}
}

const (
	settingCleanup = "cleanup.policy"
	cleanupCompact = "compact"
	settingMinISR  = "min.insync.replicas"
	settingUnclean = "unclean.leader.election.enable"
)

// createOwn makes a topic that holds one record a key, the newest, for ever: the
// checkpoint, and whether the pipeline is paused.
func (k *Kafka) createOwn(ctx context.Context, topic string) error {
	replicas, inSync, err := k.replication(ctx)
	if err != nil {
		return err
	}
	return k.create(ctx, checkpointSpec(topic, replicas, inSync))
}

func checkpointSpec(topic string, replicas int16, inSync string) topicSpec {
	return topicSpec{
		name: topic, partitions: 1, replicas: replicas,
		configs: map[string]string{
			settingCleanup: cleanupCompact,
			settingMinISR:  inSync,
			settingUnclean: "false",
			// Only closed segments are compacted: at ten checkpoints a second the
			// default of 1 GiB would be two days of them.
			"segment.bytes": "16777216",
		},
	}
}

// replication of a topic of walstream's own, as good as the cluster has it.
func (k *Kafka) replication(ctx context.Context) (replicas int16, inSync string, err error) {
	cluster, err := k.metadata(ctx, nil)
	if err != nil {
		return 0, "", err
	}
	replicas = int16(min(3, len(cluster.Brokers)))
	switch {
	case replicas == 0:
		return 0, "", errors.New("the cluster shows no brokers")
	case replicas >= 3: // with fewer, two in sync would stop at the first broker lost
		return replicas, "2", nil
	}
	return replicas, "1", nil
}

// checkpointPause is the least time between two checkpoints under load: a
// transaction costs the broker milliseconds, and a crash repeats at most this
// much. One after a quiet spell goes at once.
const checkpointPause = 100 * time.Millisecond

// committer writes checkpoints, one under way at a time, only the newest.
type committer struct {
	write func(context.Context, checkpoint.Edge) error
	box   *Mailbox
	wake  chan struct{} // one slot

	mu   sync.Mutex
	next checkpoint.Edge // newest offered
	done checkpoint.Edge // newest durable
}

func newCommitter(box *Mailbox, write func(context.Context, checkpoint.Edge) error) *committer {
	return &committer{write: write, box: box, wake: make(chan struct{}, 1)}
}

// offer replaces the edge that waits. It never blocks.
func (c *committer) offer(edge checkpoint.Edge) {
	c.mu.Lock()
	if edge.Covered > c.next.Covered {
		c.next = edge
	}
	c.mu.Unlock()
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// idle reports that nothing waits and nothing is under way.
func (c *committer) idle() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.next.Covered <= c.done.Covered
}

// run writes until the context ends or a write fails; a failure is final.
func (c *committer) run(ctx context.Context) {
	var started time.Time
	for {
		select {
		case <-c.wake:
		case <-ctx.Done():
			return
		}
		if sleep(ctx, checkpointPause-time.Since(started)) != nil {
			return
		}
		c.mu.Lock()
		edge, done := c.next, c.done
		c.mu.Unlock()
		if edge.Covered <= done.Covered {
			continue
		}
		started = time.Now()
		if err := c.write(ctx, edge); err != nil {
			c.box.PutErr(err)
			return
		}
		c.mu.Lock()
		c.done = edge
		c.mu.Unlock()
		c.box.PutDurable(edge)
	}
}
