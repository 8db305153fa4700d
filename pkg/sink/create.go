package sink

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// madeTogether is how many topics are made by one request. One by one each would
// take some ten milliseconds, and a column may name thousands; a controller refuses
// requests for more than some thousands of partitions, so it counts these.
const madeTogether = 50

// specOf a topic that a row names.
func (k *Kafka) specOf(name string) topicSpec {
	return topicSpec{name: name, partitions: k.cfg.TopicPartitions, replicas: k.cfg.TopicReplicationFactor, configs: k.cfg.TopicConfigs}
}

// makeMissing makes those of the topics that rows name and that are not there, when
// that is allowed, and adds them to topics. refused has why the others were not made.
func (k *Kafka) makeMissing(ctx context.Context, names []string, topics map[string]*kmsg.MetadataResponseTopic) (refused map[string]error, err error) {
	refused = map[string]error{}
	if !k.cfg.CreateTopics {
		return refused, nil
	}
	var missing []topicSpec
	asked := map[string]bool{k.cfg.deadLetterTopic(): true} // it has a spec of its own
	for _, name := range names {
		if topics[name] == nil && !asked[name] {
			missing = append(missing, k.specOf(name))
		}
		asked[name] = true
	}
	for specs := range together(missing, max(1, int(k.cfg.TopicPartitions))) {
		made, errs, err := k.createAll(ctx, specs...)
		for _, spec := range specs {
			if cause := errors.Join(errs[spec.name], err); cause != nil {
				refused[spec.name] = k.createError(spec, cause)
			}
		}
		if Retriable(err) {
			return nil, err
		}
		for name, topic := range made {
			topics[name] = topic
		}
	}
	return refused, nil
}

// together divides topics into requests, in their order. Of two names that differ in
// . and _ only Kafka refuses the later one, but not when one request has both.
func together(specs []topicSpec, partitions int) iter.Seq[[]topicSpec] {
	return func(yield func([]topicSpec) bool) {
		plain := strings.NewReplacer(".", "_")
		begin, names := 0, map[string]bool{}
		for i, spec := range specs {
			name := plain.Replace(spec.name)
			if full := (i-begin+1)*partitions > madeTogether; i > begin && (full || names[name]) {
				if !yield(specs[begin:i]) {
					return
				}
				begin = i
				clear(names)
			}
			names[name] = true
		}
		if begin < len(specs) {
			yield(specs[begin:])
		}
	}
}

// createError says what it means that a topic was not made.
func (k *Kafka) createError(spec topicSpec, err error) error {
	switch {
	case err == nil:
		return nil
	case isAccess(err):
		return k.cfg.denied(rightCreate, topicResource(spec.name), err)
	case errors.Is(err, kerr.InvalidTopicException): // it differs from another one in . and _ only
		return &flaw{class: ClassTopicName, err: fmt.Errorf("kafka does not make it: %w", err)}
	}
	return fmt.Errorf("create it with %s: %w", spec, err)
}

// create makes one topic.
func (k *Kafka) create(ctx context.Context, spec topicSpec) error {
	_, errs, err := k.createAll(ctx, spec)
	if err != nil {
		return err
	}
	return errs[spec.name]
}

// createAll makes topics by one request; that somebody else has just made one is as
// good. It returns when the cluster shows them. errs has those that it refuses.
func (k *Kafka) createAll(ctx context.Context, specs ...topicSpec) (made map[string]*kmsg.MetadataResponseTopic, errs map[string]error, err error) {
	names, errs, err := k.askFor(ctx, false, specs...)
	if err != nil {
		return nil, nil, err
	}
	made, err = k.awaitTopics(ctx, names)
	return made, errs, err
}

// wouldMake tells whether a topic would be made, and makes none.
func (k *Kafka) wouldMake(ctx context.Context, spec topicSpec) error {
	_, errs, err := k.askFor(ctx, true, spec)
	if err != nil {
		return err
	}
	return errs[spec.name]
}

// askFor topics by one request; try makes none. names are those that are there then.
func (k *Kafka) askFor(ctx context.Context, try bool, specs ...topicSpec) (names []string, errs map[string]error, err error) {
	req := kmsg.NewPtrCreateTopicsRequest()
	req.TimeoutMillis, req.ValidateOnly = int32(createTimeout.Milliseconds()), try
	for _, spec := range specs {
		topic := kmsg.NewCreateTopicsRequestTopic()
		topic.Topic, topic.NumPartitions, topic.ReplicationFactor = spec.name, spec.partitions, spec.replicas
		for name, value := range spec.configs {
			config := kmsg.NewCreateTopicsRequestTopicConfig()
			config.Name, config.Value = name, kmsg.StringPtr(value)
			topic.Configs = append(topic.Configs, config)
		}
		req.Topics = append(req.Topics, topic)
	}
	resp, err := req.RequestWith(ctx, k.client)
	if err != nil {
		return nil, nil, err
	}
	if len(resp.Topics) != len(specs) {
		return nil, nil, fmt.Errorf("the broker answered a request for %d topics with %d", len(specs), len(resp.Topics))
	}
	errs = map[string]error{}
	for i := range resp.Topics {
		answer := &resp.Topics[i]
		switch err := kerr.ErrorForCode(answer.ErrorCode); {
		case err == nil && try:
		case err == nil:
			k.logMade(answer)
			names = append(names, answer.Topic)
		case errors.Is(err, kerr.TopicAlreadyExists):
			names = append(names, answer.Topic)
		case answer.ErrorMessage != nil && *answer.ErrorMessage != "":
			errs[answer.Topic] = fmt.Errorf("%w: %s", err, *answer.ErrorMessage)
		default:
			errs[answer.Topic] = err
		}
	}
	return names, errs, nil
}

// awaitTopics until the cluster shows them, with a leader.
func (k *Kafka) awaitTopics(ctx context.Context, names []string) (map[string]*kmsg.MetadataResponseTopic, error) {
	shown := make(map[string]*kmsg.MetadataResponseTopic, len(names))
	for deadline := time.Now().Add(createTimeout); len(names) > 0; {
		found, err := k.lookUp(ctx, names...)
		if err != nil && !Retriable(err) {
			return nil, err
		}
		var waiting []string
		for _, name := range names {
			topic := found[name]
			if topic != nil {
				if err := topicError(topic); err != nil && !Retriable(err) {
					return nil, err
				}
			}
			if topic == nil || topicError(topic) != nil || len(topic.Partitions) == 0 || topic.Partitions[0].Leader < 0 {
				waiting = append(waiting, name)
				continue
			}
			shown[name] = topic
		}
		if names = waiting; len(names) == 0 {
			break
		}
		if time.Now().After(deadline) {
			return nil, fmt.Errorf("%w: topic %q was made and does not appear", ErrUncertain, names[0])
		}
		if err := sleep(ctx, 20*time.Millisecond); err != nil {
			return nil, err
		}
	}
	return shown, nil
}
