package sink

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/walstream/walstream/pkg/checkpoint"
	"github.com/walstream/walstream/pkg/decode"
	"github.com/walstream/walstream/pkg/outbox"
)

// A hanging transaction is one that a partition has open and that its coordinator
// does not know, or takes for ended. Nobody ends it: it hides what follows from
// readers, and the commit of the next transaction of the same producer id on that
// partition commits it too (seen on brokers of 3.9 and 4.4, whatever their
// transaction.version). Of ours, that would be rows that are sent again.
type hanging struct {
	topic     string
	partition int32
	start     int64 // offset of its first record
	id        int64 // of its producer
	epoch     int32
}

func (h *hanging) String() string {
	return fmt.Sprintf("partition %d of topic %q (from offset %d, producer id %d, epoch %d)", h.partition, h.topic, h.start, h.id, h.epoch)
}

// end is the command that ends it.
func (h *hanging) end(cfg *Config) string {
	return cfg.command("kafka-transactions", "abort --topic %s --partition %d --start-offset %d", h.topic, h.partition, h.start)
}

// hangingShown bounds what a message lists.
const hangingShown = 20

// producer of a lane. What it did before its claim has a lower epoch.
type producer struct {
	id    int64
	epoch int16
}

// awaitEnded proves that no partition has a transaction of ours open from before
// the claim, which has ended all that their coordinators know of. It is asked of
// every topic before its first row. Others' transactions are theirs.
func (c *Claim) awaitEnded(ctx context.Context, topics []topicFacts) error {
	defer c.k.stuck.Store(nil)
	for began, told := time.Now(), false; ; {
		why, err := c.whyNotEnded(ctx, topics)
		if why == nil || err != nil {
			return err
		}
		text := why.Error()
		c.k.stuck.Store(&text)
		switch waited := time.Since(began); {
		case waited > c.k.patience:
			return why
		case waited >= quietWait && !told:
			told = true
			c.k.log.Warn().Err(why).Stringer("at_most", c.k.patience).Msg("waiting for an open transaction to end: rows wait")
		}
		if err := sleep(ctx, hangingPoll); err != nil {
			return err
		}
	}
}

// hangingPoll is the pause between two looks at a transaction that should be ended.
const hangingPoll = 500 * time.Millisecond

// whyNotEnded returns what a person has to know when it lasts; err says that the
// cluster did not answer.
func (c *Claim) whyNotEnded(ctx context.Context, topics []topicFacts) (why, err error) {
	partitions := map[string]int{}
	for i := range topics {
		if f := &topics[i]; f.err == nil {
			partitions[f.name] = f.partitions
		}
	}
	open, denied, err := c.k.openTransactions(ctx, partitions)
	if err != nil {
		return nil, err
	}
	var ours []hanging
	for _, h := range open {
		for _, p := range c.took {
			if h.id == p.id && h.epoch < int32(p.epoch) {
				ours = append(ours, h)
			}
		}
	}
	if len(ours) > 0 {
		return c.k.errHanging(ours, c.fate(ctx, &ours[0])), nil
	}
	for topic := range denied {
		if open, err := c.k.anyOpen(ctx, topic, partitions[topic]); err != nil || open {
			return c.k.cfg.denied(rightRead, topicResource(topic),
				errors.New("a transaction is open there, and it cannot be told whose; were it one of this pipeline's that was left behind, its rows would be published twice")), err
		}
	}
	return nil, nil
}

func (k *Kafka) errHanging(found []hanging, fate string) error {
	where, ends := make([]string, 0, len(found)), make([]string, 0, len(found))
	for i := range found[:min(len(found), hangingShown)] {
		where, ends = append(where, found[i].String()), append(ends, found[i].end(&k.cfg))
	}
	return &SetupError{
		Found: fmt.Sprintf("a broker has kept a transaction of this pipeline's open that was ended by its coordinator: on %s; the next commit there would publish what is in it",
			strings.Join(where, ", ")),
		Remedy: fmt.Sprintf("%s: %s", fate, strings.Join(ends, "; ")),
	}
}

// What becomes of the rows in a hanging transaction when it is aborted.
const (
	fateAgain = "its rows are not published yet and are sent again, so abort it"
	fateLost  = "its rows count as published, so abort it, and publish again what walstream audit then lists as missing"
	fateOpen  = "abort it, and see by walstream audit that no row is missing"
)

// fate of the rows in h. The checkpoint tells it: rows and checkpoint are committed
// together.
func (c *Claim) fate(ctx context.Context, h *hanging) string {
	position, err := c.k.positionAt(ctx, h)
	switch {
	case err != nil || c.loaded == nil || c.loaded.Phase != checkpoint.PhaseStream:
		return fateOpen
	case covers(c.loaded, position):
		return fateLost
	}
	return fateAgain
}

// covers reports that a row is published, as far as the record says.
func covers(record *checkpoint.Record, p decode.Position) bool {
	return p.CommitLSN < record.CommitLSN || p.CommitLSN == record.CommitLSN && (record.Complete || p.Ordinal <= record.Ordinal)
}

// positionAt reads the position of the first row in a transaction.
func (k *Kafka) positionAt(ctx context.Context, h *hanging) (decode.Position, error) {
	meta, found, err := k.lookUpOne(ctx, h.topic)
	if err != nil || !found || int(h.partition) >= len(meta.Partitions) {
		return decode.Position{}, errors.Join(err, kerr.UnknownTopicOrPartition)
	}
	t := &tail{k: k, topic: h.topic, topicID: meta.TopicID, partition: h.partition}
	for _, p := range meta.Partitions {
		if p.Partition == h.partition {
			t.leader = p.Leader
		}
	}
	answer, err := t.fetch(ctx, h.start, readUncommitted)
	if err != nil {
		return decode.Position{}, err
	}
	part, _ := kgo.ProcessFetchPartition(kgo.ProcessFetchPartitionOpts{
		Offset: h.start, IsolationLevel: kgo.ReadUncommitted(), Topic: h.topic, Partition: h.partition,
	}, answer, kgo.DefaultDecompressor(), nil)
	for _, r := range part.Records {
		for _, header := range r.Headers {
			if r.ProducerID == h.id && header.Key == outbox.HeaderPosition {
				_, position, err := decode.ParseHeader(header.Value)
				return position, err
			}
		}
	}
	return decode.Position{}, errors.Join(part.Err, errors.New("no position"))
}

// openTransactions lists those of all producers, by the leaders' own state. Topics
// on which that may not be asked are denied; brokers before 2.8 cannot be asked.
func (k *Kafka) openTransactions(ctx context.Context, partitions map[string]int) (open []hanging, denied map[string]bool, err error) {
	req := kmsg.NewPtrDescribeProducersRequest()
	for name, n := range partitions {
		topic := kmsg.NewDescribeProducersRequestTopic()
		topic.Topic = name
		for p := range n {
			topic.Partitions = append(topic.Partitions, int32(p))
		}
		req.Topics = append(req.Topics, topic)
	}
	if len(req.Topics) == 0 {
		return nil, nil, nil
	}
	resp, err := req.RequestWith(ctx, k.client)
	if isTooOld(err) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	denied, answered := map[string]bool{}, 0
	for _, topic := range resp.Topics {
		for _, p := range topic.Partitions {
			answered++
			switch err := kerr.ErrorForCode(p.ErrorCode); {
			case isAccess(err):
				denied[topic.Topic] = true
				continue
			case err != nil:
				return nil, nil, fmt.Errorf("open transactions on partition %d of topic %q: %w", p.Partition, topic.Topic, err)
			}
			for _, a := range p.ActiveProducers {
				if a.CurrentTxnStartOffset >= 0 {
					open = append(open, hanging{topic.Topic, p.Partition, a.CurrentTxnStartOffset, a.ProducerID, a.ProducerEpoch})
				}
			}
		}
	}
	for _, n := range partitions {
		answered -= n
	}
	if answered != 0 {
		return nil, nil, fmt.Errorf("%w: the brokers told of open transactions on other partitions than asked for", ErrUncertain)
	}
	return open, denied, nil
}

// isTooOld tells a request that the broker does not know.
func isTooOld(err error) bool {
	if err == nil {
		return false
	}
	text := err.Error() // the library keeps these errors to itself
	return errors.Is(err, kerr.UnsupportedVersion) || strings.Contains(text, "broker is too old") || strings.Contains(text, "request key is unknown")
}

// anyOpen reports that a transaction is open on the topic, of whomever.
func (k *Kafka) anyOpen(ctx context.Context, topic string, partitions int) (bool, error) {
	// What lies below the end as it was first is settled once no transaction is open
	// below it.
	high, err := k.ends(ctx, topic, partitions, readUncommitted)
	if err != nil {
		return false, err
	}
	stable, err := k.ends(ctx, topic, partitions, readCommitted)
	if err != nil {
		return false, err
	}
	for p, end := range high {
		if stable[p] < end {
			return true, nil
		}
	}
	return false, nil
}

// ends of a topic's partitions.
func (k *Kafka) ends(ctx context.Context, topic string, partitions int, isolation int8) (map[int32]int64, error) {
	req := kmsg.NewPtrListOffsetsRequest()
	req.ReplicaID, req.IsolationLevel = -1, isolation
	asked := kmsg.NewListOffsetsRequestTopic()
	asked.Topic = topic
	for p := range partitions {
		partition := kmsg.NewListOffsetsRequestTopicPartition()
		partition.Partition, partition.Timestamp = int32(p), offsetLatest
		asked.Partitions = append(asked.Partitions, partition)
	}
	req.Topics = append(req.Topics, asked)
	resp, err := req.RequestWith(ctx, k.client)
	if err != nil {
		return nil, err
	}
	ends := map[int32]int64{}
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
				return nil, fmt.Errorf("the end of partition %d of topic %q: %w", p.Partition, topic, err)
			}
			ends[p.Partition] = p.Offset
		}
	}
	if len(ends) != partitions {
		return nil, fmt.Errorf("%w: the brokers told the ends of other partitions than asked for", ErrUncertain)
	}
	return ends, nil
}

// Hanging looks for transactions of the pipeline's that hang on the checkpoint topic
// or on topics: open on a partition, and not for their coordinator, which is asked in
// between, since an instance may be at work. It disturbs nobody. A SetupError names
// those found; unseen are the rights that are missing to look at a topic.
func (k *Kafka) Hanging(ctx context.Context, topics []string) (unseen []*AccessError, err error) {
	found, err := k.lookUp(ctx, append([]string{k.cfg.checkpointTopic()}, topics...)...)
	if err != nil {
		return nil, k.explain(err, "look for hanging transactions", rightDescribe, "topics")
	}
	partitions := map[string]int{}
	for name, topic := range found {
		if topicError(topic) == nil {
			partitions[name] = len(topic.Partitions)
		}
	}
	before, denied, err := k.ownOpen(ctx, partitions)
	if err == nil && len(before) > 0 {
		var after map[hanging]bool
		known, errKnown := k.coordinated(ctx)
		after, _, err = k.ownOpen(ctx, partitions)
		err = errors.Join(err, errKnown)
		maps.DeleteFunc(before, func(h hanging, _ bool) bool { return !after[h] || known[topicPartition{h.topic, h.partition}] })
	}
	if err != nil {
		return nil, k.explain(err, "look for hanging transactions", rightDescribe, "topics")
	}
	if len(before) > 0 {
		hung := slices.SortedFunc(maps.Keys(before), func(a, b hanging) int {
			return cmp.Or(cmp.Compare(a.topic, b.topic), cmp.Compare(a.partition, b.partition))
		})
		return nil, k.errHanging(hung, fateOpen)
	}
	for _, topic := range slices.Sorted(maps.Keys(denied)) {
		unseen = append(unseen, k.cfg.denied(rightRead, topicResource(topic), kerr.TopicAuthorizationFailed))
	}
	return unseen, nil
}

type topicPartition struct {
	topic     string
	partition int32
}

// ownOpen are the open transactions of the producer ids that our transactional ids
// have now.
func (k *Kafka) ownOpen(ctx context.Context, partitions map[string]int) (map[hanging]bool, map[string]bool, error) {
	lanes, err := k.describeLanes(ctx)
	if err != nil {
		return nil, nil, err
	}
	open, denied, err := k.openTransactions(ctx, partitions)
	if err != nil {
		return nil, nil, err
	}
	own := map[hanging]bool{}
	for _, h := range open {
		for i := range lanes {
			if lanes[i].ProducerID == h.id {
				own[h] = true
			}
		}
	}
	return own, denied, nil
}

// coordinated are the partitions in transactions of ours that are not ended for their
// coordinators.
func (k *Kafka) coordinated(ctx context.Context) (map[topicPartition]bool, error) {
	lanes, err := k.describeLanes(ctx)
	if err != nil {
		return nil, err
	}
	known := map[topicPartition]bool{}
	for i := range lanes {
		if strings.HasPrefix(lanes[i].State, "Complete") { // its partitions are told of until the next one
			continue
		}
		for _, topic := range lanes[i].Topics {
			for _, p := range topic.Partitions {
				known[topicPartition{topic.Topic, p}] = true
			}
		}
	}
	return known, nil
}

// describeLanes asks the coordinators of our transactional ids. One that was never
// used is left out.
func (k *Kafka) describeLanes(ctx context.Context) ([]kmsg.DescribeTransactionsResponseTransactionState, error) {
	ids := make([]string, 0, lanes)
	for n := range lanes {
		ids = append(ids, k.cfg.transactionalID(n))
	}
	return k.describe(ctx, ids...)
}

func (k *Kafka) describe(ctx context.Context, ids ...string) ([]kmsg.DescribeTransactionsResponseTransactionState, error) {
	req := kmsg.NewPtrDescribeTransactionsRequest()
	req.TransactionalIDs = ids
	resp, err := req.RequestWith(ctx, k.client)
	if isTooOld(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if len(resp.TransactionStates) != len(ids) {
		return nil, fmt.Errorf("%w: the coordinators told of other transactional ids than asked for", ErrUncertain)
	}
	var states []kmsg.DescribeTransactionsResponseTransactionState
	for i := range resp.TransactionStates {
		state := &resp.TransactionStates[i]
		switch err := kerr.ErrorForCode(state.ErrorCode); {
		case errors.Is(err, kerr.TransactionalIDNotFound):
		case err != nil:
			return nil, fmt.Errorf("transactional id %q: %w", state.TransactionalID, err)
		default:
			states = append(states, *state)
		}
	}
	return states, nil
}
