package sink

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
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

// Seen are the topics that a process has sent rows to, their numbers of partitions,
// and the rows that could not be sent. It may be used by several goroutines.
type Seen struct {
	mu         sync.Mutex
	partitions map[string]int
	reached    reached
	poison     poison
	told       map[string]bool // what is said once in the life of the process
}

// toldOnce bounds what is remembered of that; what is beyond is not said.
const toldOnce = 1024

// tell is true the first time that it is asked of a line. Every start would say it
// again otherwise, and an outage is hundreds of starts.
func (s *Seen) tell(line string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.told[line] || len(s.told) == toldOnce {
		return false
	}
	if s.told == nil {
		s.told = map[string]bool{}
	}
	s.told[line] = true
	return true
}

// NewSeen returns an empty one.
func NewSeen() *Seen { return &Seen{partitions: map[string]int{}} }

// topics that rows were sent to.
func (s *Seen) topics() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Keys(s.partitions))
}

// note returns the number before, 0 when the topic is new.
func (s *Seen) note(topic string, partitions int) (before int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before = s.partitions[topic]
	s.partitions[topic] = partitions
	return before
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

// count tells people when a topic has another number of partitions than before,
// also when somebody else made it anew.
func (k *Kafka) count(topic string, partitions int) {
	if before := k.cfg.Seen.note(topic, partitions); before != 0 && before != partitions {
		k.log.Warn().Str("topic", topic).Int("before", before).Int("now", partitions).
			Msg("the topic's number of partitions changed: keys go to other partitions from here on")
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
	id         [16]byte // none before Kafka 2.8
	partitions int
	limit      int   // max.message.bytes
	assumed    bool  // the limit may not be read: Kafka's default is assumed
	compacted  bool  // it takes no record without a key; false when that may not be read
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
	refused, err := k.makeMissing(ctx, names, topics)
	if err != nil {
		return nil, err
	}
	facts := make([]topicFacts, 0, len(names))
	var present []string
	for _, name := range names {
		f := topicFacts{name: name, err: refused[name]}
		if f.err == nil {
			f.partitions, f.id, f.err = k.usable(ctx, name, topics[name])
		}
		if f.err == nil {
			present = append(present, name)
			k.cfg.Seen.reached.forget(name, f.id)
			k.count(name, f.partitions)
		} else if Retriable(f.err) {
			return nil, f.err
		}
		facts = append(facts, f)
	}
	if len(present) == 0 {
		return facts, nil
	}
	values, denied, err := k.configs(ctx, present, settingMaxMessage, settingCleanup)
	if err != nil {
		return nil, err
	}
	for i := range facts {
		f := &facts[i]
		if f.err != nil {
			continue
		}
		f.limit, f.assumed = maxMessage(values[f.name], denied[f.name])
		policy := values[f.name][settingCleanup]
		f.compacted = strings.Contains(policy, cleanupCompact)
		if f.compacted && f.name == k.cfg.deadLetterTopic() {
			f.err = k.errForgetsLetters(f.name, policy)
		}
	}
	return facts, nil
}

// usable returns the topic's number of partitions and its id, or why no row may go
// there.
func (k *Kafka) usable(ctx context.Context, name string, topic *kmsg.MetadataResponseTopic) (partitions int, id [16]byte, err error) {
	if topic == nil {
		if err := k.provide(ctx, name); err != nil {
			return 0, id, err
		}
		made, found, err := k.lookUpOne(ctx, name)
		if err == nil && !found {
			err = fmt.Errorf("%w: topic %q comes and goes", ErrUncertain, name)
		}
		if err != nil {
			return 0, id, err
		}
		topic = made
	}
	switch err := topicError(topic); {
	case isAccess(err):
		return 0, id, k.cfg.denied(rightDescribe, topicResource(name), err)
	case err != nil:
		return 0, id, err
	case topic.IsInternal:
		return 0, id, &flaw{class: ClassTopicName, err: errors.New("it is internal to kafka")}
	}
	return len(topic.Partitions), topic.TopicID, nil
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
	spec := k.specOf(name)
	switch own := name == k.cfg.deadLetterTopic(); {
	case own:
		replicas, inSync, err := k.replication(ctx)
		if err != nil {
			return err
		}
		spec = deadLetterSpec(name, replicas, inSync)
	case !k.cfg.CreateTopics:
		return &flaw{class: ClassNoTopic, err: fmt.Errorf("the topic does not exist: create it (%s), or start with --create-topics", k.cfg.command("kafka-topics", "--create --topic %s", name))}
	}
	return k.createError(spec, k.create(ctx, spec))
}
