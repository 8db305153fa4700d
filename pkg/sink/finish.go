package sink

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"
)

// finishWait is how long the markers of what finish ends may take.
const finishWait = 10 * time.Second

// finish ends on all partitions the last transaction of a lane, where its coordinator
// takes it for ended and partitions still have it open. Brokers of 4.4.0 leave out
// the markers of partitions that have no leader at the moment, committed or not, as
// all have that come up together. The claim would wipe out what was decided, so this
// comes before it, and for the same reason waits for the partitions to have leaders.
// That of an open transaction is the claim's own business.
func (c *Claim) finish(ctx context.Context, n int) error {
	k := c.k
	state, err := k.describeLane(ctx, n)
	if err != nil || state == nil {
		return err
	}
	open, err := c.leftOpen(ctx, state)
	if err != nil || len(open) == 0 || !strings.HasPrefix(state.State, "Complete") {
		return err
	}
	commit := state.State == "CompleteCommit"
	if commit {
		// Without an epoch for each transaction it cannot be told which one it was.
		if each, err := k.epochEach(ctx); err != nil || !each {
			return err
		}
	}
	where := make([]string, 0, len(open))
	for i := range open {
		where = append(where, open[i].String())
	}
	k.log.Warn().Bool("committed", commit).Strs("open", where).Str("transactional_id", state.TransactionalID).
		Msg("a broker has kept a transaction of ours open that its coordinator has ended: it is ended there, too")
	if err := c.endOn(ctx, state.TransactionalID, open, commit); err != nil {
		return fmt.Errorf("end a transaction that a broker has kept open: %w", err)
	}
	for began := time.Now(); ; {
		open, err := c.leftOpen(ctx, state)
		switch {
		case err != nil || len(open) == 0:
			return err
		case time.Since(began) > finishWait:
			return fmt.Errorf("%w: a transaction was ended once more, and is still open on %s", ErrUncertain, &open[0])
		}
		if err := sleep(ctx, pollOpen); err != nil {
			return err
		}
	}
}

// leftOpen is where the transaction before state is open, among the topics that are
// known before the first row: walstream's own, those that the settings name, and
// those that the process has sent rows to.
func (c *Claim) leftOpen(ctx context.Context, state *kmsg.DescribeTransactionsResponseTransactionState) (left []hanging, err error) {
	k := c.k
	names := append([]string{k.cfg.checkpointTopic(), historyPrefix + k.cfg.Pipeline}, k.cfg.Topics...)
	resp, err := k.metadata(ctx, append(names, k.cfg.Seen.topics()...))
	if err != nil {
		return nil, err
	}
	partitions := map[string]int{}
	for i := range resp.Topics {
		if topic := &resp.Topics[i]; topic.Topic != nil && topic.ErrorCode == 0 {
			partitions[*topic.Topic] = len(topic.Partitions)
		}
	}
	open, _, err := k.openTransactions(ctx, partitions)
	for _, h := range open {
		if h.id == state.ProducerID && h.epoch == int32(state.ProducerEpoch)-1 {
			left = append(left, h)
		}
	}
	return left, err
}

// endOn ends a transaction on partitions by another one of the same producer id, in
// which they are and nothing else is: its markers end the first. It is begun by
// fencing, so no other instance can be inside.
func (c *Claim) endOn(ctx context.Context, transactionalID string, open []hanging, commit bool) error {
	// Later versions of these requests are not for clients, or add nothing.
	client, err := c.k.newClient(append(c.k.common(c.check), kgo.MaxVersions(kversion.V3_4_0())))
	if err != nil {
		return err
	}
	defer client.Close()
	init := kmsg.NewPtrInitProducerIDRequest()
	init.TransactionalID, init.TransactionTimeoutMillis = &transactionalID, int32(TransactionTimeout.Milliseconds())
	owner, err := init.RequestWith(ctx, client)
	if err == nil {
		err = kerr.ErrorForCode(owner.ErrorCode)
	}
	if err != nil {
		return err
	}
	add := kmsg.NewPtrAddPartitionsToTxnRequest()
	add.TransactionalID, add.ProducerID, add.ProducerEpoch = transactionalID, owner.ProducerID, owner.ProducerEpoch
	byTopic := map[string][]int32{}
	for _, h := range open {
		byTopic[h.topic] = append(byTopic[h.topic], h.partition)
	}
	for name, partitions := range byTopic {
		topic := kmsg.NewAddPartitionsToTxnRequestTopic()
		topic.Topic, topic.Partitions = name, partitions
		add.Topics = append(add.Topics, topic)
	}
	added, err := add.RequestWith(ctx, client)
	if err != nil {
		return err
	}
	for _, topic := range added.Topics {
		for _, p := range topic.Partitions {
			err = errors.Join(err, kerr.ErrorForCode(p.ErrorCode))
		}
	}
	if err != nil {
		return err
	}
	end := kmsg.NewPtrEndTxnRequest()
	end.TransactionalID, end.ProducerID, end.ProducerEpoch, end.Commit = transactionalID, owner.ProducerID, owner.ProducerEpoch, commit
	ended, err := end.RequestWith(ctx, client)
	if err == nil {
		err = kerr.ErrorForCode(ended.ErrorCode)
	}
	return err
}

// epochEach: each transaction has an epoch of its own (transaction.version 2).
func (k *Kafka) epochEach(ctx context.Context) (bool, error) {
	resp, err := kmsg.NewPtrApiVersionsRequest().RequestWith(ctx, k.client)
	if err != nil {
		return false, err
	}
	for _, feature := range resp.FinalizedFeatures {
		if feature.Name == "transaction.version" {
			return feature.MaxVersionLevel >= 2, nil
		}
	}
	return false, nil
}

// describeLane waits for the coordinator, which a cluster may not have yet; nil: the
// id was never used, or may not be described, which the claim itself says better.
func (k *Kafka) describeLane(ctx context.Context, n int) (*kmsg.DescribeTransactionsResponseTransactionState, error) {
	for began := time.Now(); ; {
		states, err := k.describe(ctx, k.cfg.transactionalID(n))
		switch {
		case err == nil && len(states) == 0, isAccess(err) && !isLogin(err):
			return nil, nil //nolint:nilnil // see above
		case err == nil:
			return &states[0], nil
		case !isComing(err) || time.Since(began) > retryTimeout:
			return nil, err
		}
		if err := sleep(ctx, pollOpen); err != nil {
			return nil, err
		}
	}
}

// isComing tells the errors of a cluster that has just come up.
func isComing(err error) bool {
	return errors.Is(err, kerr.CoordinatorNotAvailable) || errors.Is(err, kerr.CoordinatorLoadInProgress) || errors.Is(err, kerr.NotCoordinator)
}
