package main

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/walstream/walstream/pkg/outbox"
)

// What becomes of a row.
const (
	published = "record"
	dropped   = "nothing"
	refused   = "refused" // Connect fails the task; walstream stops, or does not start
)

// answer is what one side makes of a row.
type answer struct {
	Case      string   `json:"case"`
	Outcome   string   `json:"outcome"`
	Error     string   `json:"error"`
	Topic     string   `json:"topic"`
	Key       []byte   `json:"key"` // nil: none
	Value     []byte   `json:"value"`
	Headers   []header `json:"headers"`
	Partition *int32   `json:"partition"` // nil: whatever the producer likes
	Timestamp int64    `json:"timestamp"` // in ms
	// Processed is when Debezium saw the row, the timestamp it takes by default.
	Processed int64 `json:"processed"`
}

type header struct {
	Name  string `json:"name"`
	Value []byte `json:"value"`
}

// difference is a part of the record in which the sides are not of one opinion.
type difference struct {
	Part                string
	Debezium, Walstream string
}

// Rules that hold for every record, and are not listed for each.
const (
	ruleHeaders   = "own-headers"
	ruleContext   = "connector-headers"
	ruleTime      = "commit-time"
	rulePartition = "no-key"
)

// written is when a row was.
type written struct{ from, to time.Time }

// compare returns the differences of one row's records, and the rules for all
// records that were needed to find no more.
func compare(debezium, walstream *answer, when written) (differences []difference, rules []string) {
	differ := func(part, d, w string) {
		if d != w {
			differences = append(differences, difference{part, d, w})
		}
	}
	if debezium.Outcome != published || walstream.Outcome != published {
		differ("outcome", debezium.Outcome, walstream.Outcome)
		if len(differences) > 0 && debezium.Outcome == refused {
			differences[0].Debezium += ": " + debezium.Error
		}
		return differences, nil
	}
	differ("topic", debezium.Topic, walstream.Topic)
	differ("key", show(debezium.Key), show(walstream.Key))
	differ("value", show(debezium.Value), show(walstream.Value))
	own, ours := splitHeaders(walstream.Headers, "walstream-")
	if names := headerNames(own); names == strings.Join(ownHeaders, ", ") {
		rules = append(rules, ruleHeaders)
	} else {
		differ("own headers", strings.Join(ownHeaders, ", "), names)
	}
	context, theirs := splitHeaders(debezium.Headers, contextPrefix)
	if len(context) > 0 {
		rules = append(rules, ruleContext)
	}
	compareHeaders(theirs, ours, differ)
	switch {
	case debezium.Partition == nil && debezium.Key == nil:
		rules = append(rules, rulePartition)
	default:
		differ("partition", partition(debezium), partition(walstream))
	}
	if debezium.Timestamp == debezium.Processed && during(walstream.Timestamp, when) {
		rules = append(rules, ruleTime)
	} else {
		differ("timestamp", clock(debezium.Timestamp), clock(walstream.Timestamp))
	}
	return differences, rules
}

// compareHeaders by name where both sides have the same ones.
func compareHeaders(theirs, ours []header, differ func(part, d, w string)) {
	byName := func(a, b header) int { return strings.Compare(a.Name, b.Name) }
	sortedTheirs, sortedOurs := slices.SortedStableFunc(slices.Values(theirs), byName), slices.SortedStableFunc(slices.Values(ours), byName)
	if headerNames(sortedTheirs) != headerNames(sortedOurs) {
		differ("headers", headerNames(theirs), headerNames(ours))
		return
	}
	differ("order of headers", headerNames(theirs), headerNames(ours))
	for i, h := range sortedOurs {
		differ("header "+h.Name, show(sortedTheirs[i].Value), show(h.Value))
	}
}

// contextPrefix begins the names of headers that Debezium's connector adds.
const contextPrefix = "__debezium.context."

// ownHeaders are those of every record, in their order.
var ownHeaders = []string{outbox.HeaderPosition, outbox.HeaderEventID, outbox.HeaderPipeline}

// splitHeaders takes those out whose names begin so.
func splitHeaders(all []header, prefix string) (taken, others []header) {
	for _, h := range all {
		if strings.HasPrefix(h.Name, prefix) {
			taken = append(taken, h)
		} else {
			others = append(others, h)
		}
	}
	return taken, others
}

func headerNames(headers []header) string {
	var names []string
	for _, h := range headers {
		names = append(names, h.Name)
	}
	return strings.Join(names, ", ")
}

func partition(a *answer) string {
	if a.Partition == nil {
		return "any"
	}
	return strconv.Itoa(int(*a.Partition))
}

func clock(ms int64) string { return time.UnixMilli(ms).UTC().Format("2006-01-02T15:04:05.000Z") }

func during(ms int64, when written) bool {
	return ms >= when.from.UnixMilli() && ms <= when.to.UnixMilli()
}

// shown is as much of bytes as a person reads.
const shown = 400

// show writes bytes so that different ones look different: text as it is, other
// bytes in hex, long ones by their hash, no bytes as NULL and empty ones as such.
func show(b []byte) string {
	switch {
	case b == nil:
		return "(NULL)"
	case len(b) == 0:
		return "(empty)"
	case len(b) > shown:
		return fmt.Sprintf("(%d bytes, sha256 %x)", len(b), sha256.Sum256(b))
	case !utf8.Valid(b) || bytes.HasPrefix(b, []byte("(")) || slices.ContainsFunc([]rune(string(b)), func(r rune) bool { return !unicode.IsPrint(r) && r != '\n' }):
		return fmt.Sprintf("(hex %x)", b)
	}
	return string(b)
}
