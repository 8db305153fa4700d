package sink

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	// doubts is how often a topic must be reported missing, by requests that kgo
	// spreads over the brokers, before it counts as missing: a broker that has
	// just come up may not know it yet.
	doubts     = 3
	doubtPause = 150 * time.Millisecond
	// defaultMaxMessage is Kafka's default of max.message.bytes, assumed where
	// the topic's own may not be read.
	defaultMaxMessage = 1048588
	createTimeout     = 10 * time.Second
)

// lookUp returns what the cluster says of the topics. A missing one is absent
// from the map, and asked for several times first; another error stays in its
// entry, for topicError.
func (k *Kafka) lookUp(ctx context.Context, names ...string) (map[string]*kmsg.MetadataResponseTopic, error) {
	found := make(map[string]*kmsg.MetadataResponseTopic, len(names))
	for try := 1; ; try++ {
		resp, err := k.metadata(ctx, names)
		if err != nil {
			return nil, err
		}
		var missing []string
		for i := range resp.Topics {
			topic := &resp.Topics[i]
			switch {
			case topic.Topic == nil:
			case isUnknownTopic(topicError(topic)):
				missing = append(missing, *topic.Topic)
			default:
				found[*topic.Topic] = topic
			}
		}
		if len(missing) == 0 || try == doubts {
			return found, nil
		}
		names = missing
		if err := sleep(ctx, doubtPause); err != nil {
			return nil, err
		}
	}
}

func topicError(topic *kmsg.MetadataResponseTopic) error { return kerr.ErrorForCode(topic.ErrorCode) }

// lookUpOne is lookUp for one topic.
func (k *Kafka) lookUpOne(ctx context.Context, name string) (topic *kmsg.MetadataResponseTopic, found bool, err error) {
	topics, err := k.lookUp(ctx, name)
	if err != nil || topics[name] == nil {
		return nil, false, err
	}
	return topics[name], true, topicError(topics[name])
}

func (k *Kafka) metadata(ctx context.Context, names []string) (*kmsg.MetadataResponse, error) {
	req := kmsg.NewPtrMetadataRequest()
	req.AllowAutoTopicCreation = false // a broker's defaults are nobody's decision
	req.IncludeTopicAuthorizedOperations = true
	for _, name := range names {
		topic := kmsg.NewMetadataRequestTopic()
		topic.Topic = kmsg.StringPtr(name)
		req.Topics = append(req.Topics, topic)
	}
	if len(names) == 0 {
		req.Topics = []kmsg.MetadataRequestTopic{} // none; null would be all
	}
	return req.RequestWith(ctx, k.client)
}

// topicSpec of a topic to make.
type topicSpec struct {
	name       string
	partitions int32
	replicas   int16
	configs    map[string]string
}

// String says what is asked for.
func (s topicSpec) String() string {
	partitions, replicas := "the broker's default number of partitions", fmt.Sprintf("replication factor %d", s.replicas)
	switch {
	case s.partitions == 1:
		partitions = "1 partition"
	case s.partitions > 1:
		partitions = fmt.Sprintf("%d partitions", s.partitions)
	}
	switch {
	case s.replicas > 0:
	case s.partitions > 0:
		replicas = "the broker's default replication factor"
	default:
		replicas = "replication factor"
	}
	return partitions + " and " + replicas
}

// Seen are the topics that a process has sent rows to, and their numbers of
// partitions. It may be used by several goroutines.
type Seen struct {
	mu         sync.Mutex
	partitions map[string]int
}

// NewSeen returns an empty one.
func NewSeen() *Seen { return &Seen{partitions: map[string]int{}} }

// note returns the number before, 0 when the topic is new.
func (s *Seen) note(topic string, partitions int) (before int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before = s.partitions[topic]
	s.partitions[topic] = partitions
	return before
}

// create makes the topic; that somebody else has just done so is as good. It
// returns when the cluster shows it.
func (k *Kafka) create(ctx context.Context, spec topicSpec) error {
	req := kmsg.NewPtrCreateTopicsRequest()
	req.TimeoutMillis = int32(createTimeout.Milliseconds())
	topic := kmsg.NewCreateTopicsRequestTopic()
	topic.Topic, topic.NumPartitions, topic.ReplicationFactor = spec.name, spec.partitions, spec.replicas
	for name, value := range spec.configs {
		config := kmsg.NewCreateTopicsRequestTopicConfig()
		config.Name, config.Value = name, kmsg.StringPtr(value)
		topic.Configs = append(topic.Configs, config)
	}
	req.Topics = append(req.Topics, topic)
	resp, err := req.RequestWith(ctx, k.client)
	if err != nil {
		return err
	}
	if len(resp.Topics) != 1 {
		return fmt.Errorf("the broker answered a request for topic %q without it", spec.name)
	}
	answer := &resp.Topics[0]
	switch err := kerr.ErrorForCode(answer.ErrorCode); {
	case err == nil:
		k.logMade(answer)
	case errors.Is(err, kerr.TopicAlreadyExists):
	case answer.ErrorMessage != nil && *answer.ErrorMessage != "":
		return fmt.Errorf("%w: %s", err, *answer.ErrorMessage)
	default:
		return err
	}
	return k.awaitTopic(ctx, spec.name)
}

func (k *Kafka) logMade(made *kmsg.CreateTopicsResponseTopic) {
	log := func(event *zerolog.Event) *zerolog.Event {
		return event.Str("topic", made.Topic).Int32("partitions", made.NumPartitions).Int16("replication_factor", made.ReplicationFactor)
	}
	if before := k.cfg.Seen.note(made.Topic, int(made.NumPartitions)); before != 0 && before != int(made.NumPartitions) {
		log(k.log.Warn()).Int("before", before).
			Msg("made the topic anew, and it had another number of partitions: keys go to other partitions from here on")
		return
	}
	log(k.log.Info()).Msg("made the topic")
}

func (k *Kafka) awaitTopic(ctx context.Context, name string) error {
	for deadline := time.Now().Add(createTimeout); ; {
		topic, found, err := k.lookUpOne(ctx, name)
		if err != nil && !Retriable(err) {
			return err
		}
		if err == nil && found && len(topic.Partitions) > 0 && topic.Partitions[0].Leader >= 0 {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%w: topic %q was made and does not appear", ErrUncertain, name)
		}
		if err := sleep(ctx, 20*time.Millisecond); err != nil {
			return err
		}
	}
}

// configs reads settings of topics. A topic whose settings may not be read is
// absent, and its error in denied.
func (k *Kafka) configs(ctx context.Context, topics []string, settings ...string) (values map[string]map[string]string, denied map[string]error, err error) {
	req := kmsg.NewPtrDescribeConfigsRequest()
	for _, topic := range topics {
		resource := kmsg.NewDescribeConfigsRequestResource()
		resource.ResourceType, resource.ResourceName = kmsg.ConfigResourceTypeTopic, topic
		resource.ConfigNames = settings
		req.Resources = append(req.Resources, resource)
	}
	resp, err := req.RequestWith(ctx, k.client)
	if err != nil {
		return nil, nil, err
	}
	values, denied = map[string]map[string]string{}, map[string]error{}
	for _, resource := range resp.Resources {
		if err := kerr.ErrorForCode(resource.ErrorCode); err != nil {
			if Retriable(err) {
				return nil, nil, fmt.Errorf("settings of topic %q: %w", resource.ResourceName, err)
			}
			denied[resource.ResourceName] = err
			continue
		}
		set := make(map[string]string, len(resource.Configs))
		for _, config := range resource.Configs {
			if config.Value != nil {
				set[config.Name] = *config.Value
			}
		}
		values[resource.ResourceName] = set
	}
	return values, denied, nil
}

// topicFacts is what must be known of a topic before a row goes there.
type topicFacts struct {
	name       string
	partitions int
	limit      int   // max.message.bytes
	assumed    bool  // the limit may not be read: Kafka's default is assumed
	err        error // why no row may go there
}

// learn looks topics up, making the missing ones when that is allowed. An error
// means that the cluster did not answer; what is wrong with a topic is in its
// facts.
func (k *Kafka) learn(ctx context.Context, names []string) ([]topicFacts, error) {
	topics, err := k.lookUp(ctx, names...)
	if err != nil {
		return nil, err
	}
	facts := make([]topicFacts, 0, len(names))
	var present []string
	for _, name := range names {
		f := topicFacts{name: name}
		if f.partitions, f.err = k.usable(ctx, name, topics[name]); f.err == nil {
			present = append(present, name)
			k.cfg.Seen.note(name, f.partitions)
		} else if Retriable(f.err) {
			return nil, f.err
		}
		facts = append(facts, f)
	}
	if len(present) == 0 {
		return facts, nil
	}
	values, denied, err := k.configs(ctx, present, settingMaxMessage)
	if err != nil {
		return nil, err
	}
	for i := range facts {
		f := &facts[i]
		if f.err == nil {
			f.limit, f.assumed = maxMessage(values[f.name], denied[f.name])
		}
	}
	return facts, nil
}

// usable returns the topic's number of partitions, or why no row may go there.
func (k *Kafka) usable(ctx context.Context, name string, topic *kmsg.MetadataResponseTopic) (int, error) {
	if topic == nil {
		if err := k.provide(ctx, name); err != nil {
			return 0, err
		}
		made, found, err := k.lookUpOne(ctx, name)
		if err == nil && !found {
			err = fmt.Errorf("%w: topic %q comes and goes", ErrUncertain, name)
		}
		if err != nil {
			return 0, err
		}
		topic = made
	}
	switch err := topicError(topic); {
	case isAccess(err):
		return 0, k.cfg.denied(rightDescribe, topicResource(name), err)
	case err != nil:
		return 0, err
	case topic.IsInternal:
		return 0, errors.New("it is internal to kafka")
	}
	return len(topic.Partitions), nil
}

const settingMaxMessage = "max.message.bytes"

func maxMessage(settings map[string]string, denied error) (limit int, assumed bool) {
	if n, err := strconv.Atoi(settings[settingMaxMessage]); denied == nil && err == nil && n > 0 {
		return n, false
	}
	return defaultMaxMessage, true
}

// provide makes a missing topic, or says how to.
func (k *Kafka) provide(ctx context.Context, name string) error {
	if !k.cfg.CreateTopics {
		return fmt.Errorf("the topic does not exist: create it (%s), or start with --create-topics", k.cfg.command("kafka-topics", "--create --topic %s", name))
	}
	spec := topicSpec{name: name, partitions: k.cfg.TopicPartitions, replicas: k.cfg.TopicReplicationFactor}
	err := k.create(ctx, spec)
	switch {
	case isAccess(err):
		return k.cfg.denied(rightCreate, topicResource(name), err)
	case err != nil:
		return fmt.Errorf("create it with %s: %w", spec, err)
	}
	return nil
}
