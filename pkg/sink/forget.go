package sink

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// OwnTopics are those that walstream keeps for the pipeline and that exist. Dead
// letters are told apart: they are rows, and may be all that is left of them.
func (k *Kafka) OwnTopics(ctx context.Context) (topics []string, letters string, err error) {
	names := []string{k.cfg.checkpointTopic(), k.cfg.historyTopic(), k.cfg.controlTopic(), k.cfg.deadLetterTopic()}
	meta, err := k.metadata(ctx, names)
	if err != nil {
		return nil, "", k.explain(err, "look up walstream's topics", rightDescribe, "topics")
	}
	for i := range meta.Topics {
		topic := &meta.Topics[i]
		switch err := topicError(topic); {
		case isUnknownTopic(err), topic.Topic == nil:
		case isAccess(err): // one that we may not see is none that we made
		case err != nil:
			return nil, "", k.explain(err, "look up walstream's topics", rightDescribe, topicResource(*topic.Topic))
		case *topic.Topic == k.cfg.deadLetterTopic():
			letters = *topic.Topic
		default:
			topics = append(topics, *topic.Topic)
		}
	}
	return topics, letters, nil
}

// CheckpointTopic is its name.
func (k *Kafka) CheckpointTopic() string { return k.cfg.checkpointTopic() }

// Forget takes the checkpoint back: a tombstone in a transaction of lane 0, behind
// which the pipeline starts as if it had never been. An instance that was frozen
// is fenced by the claim and cannot write an old one behind it.
func (c *Claim) Forget(ctx context.Context) error {
	c.mustOwn("forget the checkpoint")
	tombstone := &kgo.Record{Topic: c.k.cfg.checkpointTopic(), Partition: 0, Key: []byte(c.k.cfg.Pipeline)}
	if err := commitAlone(ctx, c.lane[0], tombstone); err != nil {
		return c.k.checkpointError(err)
	}
	return nil
}

// Owned claims every lane: all earlier holders are fenced.
func (k *Kafka) Owned(ctx context.Context) (*Claim, error) {
	c := k.NewClaim(nil)
	c.leaving = true
	for n := range lanes {
		if err := c.Take(ctx, n); err != nil {
			c.Close()
			return nil, err
		}
	}
	return c, nil
}

// DeleteTopic removes a topic; one that is gone already is no error.
func (k *Kafka) DeleteTopic(ctx context.Context, name string) error {
	req := kmsg.NewPtrDeleteTopicsRequest()
	req.TimeoutMillis = int32(createTimeout.Milliseconds())
	req.TopicNames = []string{name}
	topic := kmsg.NewDeleteTopicsRequestTopic()
	topic.Topic = kmsg.StringPtr(name)
	req.Topics = append(req.Topics, topic)
	resp, err := req.RequestWith(ctx, k.client)
	if err == nil && len(resp.Topics) != 1 {
		return fmt.Errorf("the broker answered a request for topic %q without it", name)
	}
	if err == nil {
		err = kerr.ErrorForCode(resp.Topics[0].ErrorCode)
	}
	switch {
	case isUnknownTopic(err):
		return nil
	case errors.Is(err, kerr.TopicDeletionDisabled):
		return &SetupError{
			Found:  fmt.Sprintf("the brokers delete no topics (delete.topic.enable=false), so %q stays, with nothing in it that counts", name),
			Remedy: "leave it, or delete it once that setting allows",
		}
	}
	return k.explain(err, fmt.Sprintf("delete topic %q", name), rightDelete, topicResource(name))
}
