package sink

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/walstream/walstream/pkg/outbox"
)

// What does not fit the topic of dead letters is cut, the value first; what is kept
// always fits, and says what is missing.
func TestDeadLetterFits(t *testing.T) {
	own := []kgo.RecordHeader{{Key: outbox.HeaderPosition, Value: []byte("P")}, {Key: outbox.HeaderEventID, Value: []byte("E")}}
	many := append([]kgo.RecordHeader{}, own...)
	for range 1000 {
		many = append(many, kgo.RecordHeader{Key: "h", Value: make([]byte, 1000)})
	}
	for name, c := range map[string]struct {
		key, value int
		headers    []kgo.RecordHeader
		limit      int
		cut        string
		keeps      int // of the value
		err        bool
	}{
		"whole":             {10, 1000, own, 1 << 20, "", 1000, false},
		"value":             {10, 2 << 20, own, 1 << 20, "value", truncatedValue, false},
		"small limit":       {10, 2 << 20, own, 10_000, "value", 9_000, false},
		"smaller value":     {10, 20_000, own, 10_000, "value", 9_000, false},
		"headers":           {10, 1000, many, 500_000, "headers", 1000, false},
		"headers and value": {10, 2 << 20, many, 500_000, "value,headers", truncatedValue, false},
		"all":               {2 << 20, 2 << 20, many, 500_000, "value,headers,key", truncatedValue, false},
		"nothing fits":      {10, 1000, own, 500, "", 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			r := &row{record: kgo.Record{Topic: "t", Partition: -1, Key: make([]byte, c.key), Value: make([]byte, c.value), Headers: c.headers, Timestamp: time.Unix(1, 0)}, table: "public.outbox"}
			e, err := deadLetter(r, &flaw{class: ClassTooLarge, err: errors.New("why")}, "", c.limit, time.Now())
			if c.err {
				if !errors.Is(err, errLetterTooLarge) {
					t.Errorf("got %v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if size := recordSize(e); size > c.limit {
				t.Errorf("%d bytes", size)
			}
			headers := map[string]string{}
			for _, h := range e.Headers {
				headers[h.Key] = string(h.Value)
			}
			if headers[letterTruncated] != c.cut || len(e.Value) < c.keeps || len(e.Value) > c.value {
				t.Errorf("cut %q, value of %d", headers[letterTruncated], len(e.Value))
			}
			if headers[outbox.HeaderPosition] != "P" || headers[outbox.HeaderEventID] != "E" || headers[letterReason] != "why" {
				t.Errorf("headers %v", headers)
			}
		})
	}
}

func TestTopicsAllowed(t *testing.T) {
	c := Config{TopicsAllowed: []string{"bank.*", "orders", "a?c"}}
	for name, want := range map[string]Class{
		"bank.deposits": "", "bank.": "", "orders": "", "abc": "",
		"orders2": ClassNotListed, "Bank.x": ClassNotListed, "ac": ClassNotListed, "x.bank.y": ClassNotListed,
		"bank.ü": ClassTopicName, "__bank": ClassTopicName, "": ClassTopicName, strings.Repeat("a", 250): ClassTopicName,
	} {
		if got, _ := Flaw(c.checkTopic(name)); got != want {
			t.Errorf("%q: %q, want %q", name, got, want)
		}
	}
	c.TopicsAllowed = nil
	if err := c.checkTopic("anything"); err != nil {
		t.Error(err)
	}
}
