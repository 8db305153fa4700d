package sink

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// Names that collide never stand in one request, the order is kept, and requests are
// bounded by partitions.
func TestTopicsMadeTogether(t *testing.T) {
	for _, c := range []struct {
		names      string
		partitions int
		want       string
	}{
		{"", 1, ""},
		{"a", 1, "a"},
		{"a b c", 1, "a b c"},
		{"a_b a.b c", 1, "a_b|a.b c"},
		{"a.b c a_b a-b", 1, "a.b c|a_b a-b"},
		{"a b c d e", 25, "a b|c d|e"},
		{"a b", 10_000, "a|b"},
	} {
		var specs []topicSpec
		for name := range strings.FieldsSeq(c.names) {
			specs = append(specs, topicSpec{name: name})
		}
		var got []string
		for chunk := range together(specs, c.partitions) {
			var names []string
			for _, spec := range chunk {
				names = append(names, spec.name)
			}
			got = append(got, strings.Join(names, " "))
		}
		if text := strings.Join(got, "|"); text != c.want {
			t.Errorf("%s by %d: %s, want %s", c.names, c.partitions, text, c.want)
		}
	}
}

// Many topics that are missing are made in few requests; one that Kafka refuses does
// not hold up the others.
func TestManyTopicsAreMade(t *testing.T) {
	everyBroker(t, func(t *testing.T, brokers []string) {
		cfg := testConfig(t, brokers)
		cfg.CreateTopics, cfg.TopicPartitions = true, 1
		k := open(t, cfg)
		prefix := createTopic(t, brokers, 1, nil)
		var names []string
		for n := range 120 {
			names = append(names, fmt.Sprint(prefix, "-", n))
		}
		names = append(names, names[7], prefix)
		facts, err := k.learn(t.Context(), names)
		if err != nil || len(facts) != len(names) {
			t.Fatalf("%d facts: %v", len(facts), err)
		}
		if at := slices.IndexFunc(facts, func(f topicFacts) bool { return f.err != nil || f.partitions < 1 }); at >= 0 {
			t.Errorf("%+v", facts[at])
		}
	})
}
