package sink

import (
	"context"
	"fmt"

	"github.com/walstream/walstream/pkg/history"
)

func (c *Config) historyTopic() string { return historyPrefix + c.Pipeline }

// History reads what is known of the pipeline's published rows: the buckets of its
// history topic in their order, and behind them the unfinished one of the newest
// checkpoint. Whoever writes meanwhile, nothing is missing in between. It makes
// nothing; a pipeline that keeps no history has none.
func (k *Kafka) History(ctx context.Context) ([]history.Bucket, error) {
	record, found, err := k.Load(ctx) // first: what it says is unfinished may be a bucket by now, not the other way round
	if err != nil {
		return nil, err
	}
	topic := k.cfg.historyTopic()
	stretches, err := k.Stretches(ctx, []string{topic}, TransactionTimeout)
	if err != nil {
		return nil, err
	}
	// The checkpoint's transaction may be visible there and not here yet: Stretches
	// has waited for what was open.
	var buckets []history.Bucket
	for i := range stretches {
		if len(stretches) != 1 {
			return nil, errPartitions(topic, len(stretches))
		}
		if s := &stretches[i]; s.Visible < s.End {
			return nil, fmt.Errorf("%w: a transaction is open on topic %q (offsets %d to %d), and may hide history", ErrUncertain, topic, s.Visible, s.End)
		}
		err := k.ReadStretch(ctx, &stretches[i], func(r *TopicRecord) error {
			if string(r.Key) != k.cfg.Pipeline {
				return nil
			}
			b, err := history.Decode(r.Value)
			if err != nil {
				return &SetupError{
					Found:  fmt.Sprintf("topic %q, offset %d: %v", topic, r.Offset, err),
					Remedy: "read it by the release that wrote it; if nobody knows what it is, delete the topic with the instances stopped: history begins anew then",
				}
			}
			buckets = append(buckets, b)
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	if !found || record.History == nil || record.Covered <= record.History.From {
		return buckets, nil
	}
	open := history.Bucket{
		Pipeline: record.Pipeline, SystemID: record.SystemID, Timeline: record.Timeline, Database: record.Database,
		From: record.History.From, To: record.Covered, Tally: record.History.Tally, Unfinished: true, Version: record.Version,
	}
	if n := len(buckets); n > 0 && buckets[n-1].SystemID == open.SystemID && buckets[n-1].Timeline == open.Timeline && open.From < buckets[n-1].To {
		return buckets, nil // it was finished since
	}
	return append(buckets, open), nil
}
