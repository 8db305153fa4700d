package sink

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/walstream/walstream/pkg/outbox"
)

// Status of a finding.
type Status string

// What a finding means: fine; a promise that does not hold in full; walstream
// will not work.
const (
	StatusOK   Status = "ok"
	StatusWarn Status = "warn"
	StatusFail Status = "fail"
)

// Finding is one thing that Check looked at.
type Finding struct {
	Name   string // e.g. "kafka topic orders"
	Status Status
	Detail string
	Remedy string // a command or setting that mends it; empty when fine
	Err    error  // an AccessError, what went wrong, or nil
}

const (
	transactionState = "__transaction_state"
	wantReplicas     = 3
	wantInSync       = 2
)

// Check looks at what walstream needs of the cluster and how much its promises
// are worth there. topics are those that rows will go to, as far as known. It
// changes nothing, and fences nobody.
func (k *Kafka) Check(ctx context.Context, topics []string) []Finding {
	cluster, err := k.metadata(ctx, nil)
	if err != nil {
		err = k.explain(err, "connect", rightDescribe, "cluster")
		return []Finding{{
			Name: "kafka brokers", Status: StatusFail, Detail: err.Error(),
			Remedy: "check kafka-brokers, kafka-tls and the SASL settings; advertised.listeners of the brokers must be reachable from here", Err: err,
		}}
	}
	findings := []Finding{k.checkBrokers(cluster)}
	findings = append(findings, k.checkTransactionalIDs(ctx)...)

	checkpoints := k.cfg.checkpointTopic()
	past := k.cfg.historyTopic()
	letters := k.cfg.deadLetterTopic()
	names := append([]string{checkpoints, transactionState, letters, past}, topics...)
	inspection, err := k.inspect(ctx, names)
	if err != nil {
		return append(findings, Finding{Name: "kafka topics", Status: StatusFail, Detail: k.explain(err, "look up topics", rightDescribe, "topics").Error(), Err: err})
	}
	findings = append(findings, k.checkCheckpointTopic(ctx, inspection, checkpoints), k.checkTransactionState(inspection))
	if k.cfg.HistoryRetention > 0 {
		findings = append(findings, k.checkHistoryTopic(ctx, inspection, past))
	}
	if k.cfg.buries() {
		findings = append(findings, k.checkLetters(ctx, inspection, letters))
	}
	for _, topic := range topics {
		findings = append(findings, k.checkTopic(ctx, inspection, topic))
	}
	return findings
}

// checkMakeable asks whether a missing topic would be made, and makes none.
func (k *Kafka) checkMakeable(ctx context.Context, f *Finding, spec func(replicas int16, inSync string) topicSpec) {
	replicas, inSync, err := k.replication(ctx)
	if err == nil {
		asked := spec(replicas, inSync)
		if err = k.wouldMake(ctx, asked); isAccess(err) {
			f.fail(k.cfg.denied(rightCreate, topicResource(asked.name), err))
			f.Remedy = k.cfg.grant(topicResource(asked.name), rightCreate)
			return
		}
	}
	if err != nil {
		f.Status, f.Detail, f.Err = StatusFail, "does not exist, and would not be made: "+err.Error(), err
		f.Remedy = "see topic-partitions, topic-replication-factor, topic-config and the brokers' policy, or make it yourself"
	}
}

func (k *Kafka) checkBrokers(cluster *kmsg.MetadataResponse) Finding {
	var addresses []string
	for _, b := range cluster.Brokers {
		addresses = append(addresses, b.Host+":"+strconv.Itoa(int(b.Port)))
	}
	f := Finding{Name: "kafka brokers", Status: StatusOK, Detail: fmt.Sprintf("%d: %s", len(addresses), strings.Join(addresses, ", "))}
	if len(addresses) < wantReplicas {
		f.Status = StatusWarn
		f.Remedy = "fewer than three brokers: nothing is lost when a process crashes, but it is when a disk is"
	}
	return f
}

// checkTransactionalIDs asks the coordinators whether we may write by our ids, by
// a request to end a transaction of a producer that never was: rights are looked
// at first, and the producer is then found to be none of the id's.
func (k *Kafka) checkTransactionalIDs(ctx context.Context) (findings []Finding) {
	for n := range lanes {
		id := k.cfg.transactionalID(n)
		f := Finding{Name: "kafka transactional id " + id, Status: StatusOK, Detail: "usable"}
		req := kmsg.NewPtrEndTxnRequest()
		req.TransactionalID, req.ProducerID, req.ProducerEpoch = id, math.MaxInt64, 0
		resp, err := req.RequestWith(ctx, k.client)
		if err == nil {
			err = kerr.ErrorForCode(resp.ErrorCode)
		}
		switch {
		case errors.Is(err, kerr.InvalidProducerIDMapping), errors.Is(err, kerr.InvalidProducerEpoch), errors.Is(err, kerr.InvalidTxnState):
		case err != nil:
			resource := fmt.Sprintf("transactional id %q", id)
			err = k.explain(err, "ask", rightWrite, resource)
			f.Status, f.Detail, f.Err = StatusFail, err.Error(), err
			f.Remedy = k.cfg.grant(resource, rightWrite)
			var access *AccessError
			if !errors.As(err, &access) { // a coordinator that is not up yet
				f.Status, f.Remedy = StatusWarn, "check again in a moment: brokers make "+transactionState+" when it is first asked for"
			}
		}
		findings = append(findings, f)
	}
	return findings
}

// inspection is what the cluster says of some topics.
type inspection struct {
	cfg    *Config
	found  map[string]*kmsg.MetadataResponseTopic
	values map[string]map[string]string
	denied map[string]error
}

func (k *Kafka) inspect(ctx context.Context, names []string) (*inspection, error) {
	found, err := k.lookUp(ctx, names...)
	if err != nil {
		return nil, err
	}
	var present []string
	for name, topic := range found {
		if topicError(topic) == nil {
			present = append(present, name)
		}
	}
	in := &inspection{cfg: &k.cfg, found: found}
	if len(present) > 0 {
		in.values, in.denied, err = k.configs(ctx, present, settingMaxMessage, settingMinISR, settingUnclean, settingCleanup, settingRetention)
	}
	return in, err
}

func (k *Kafka) checkCheckpointTopic(ctx context.Context, in *inspection, name string) Finding {
	f := Finding{Name: "kafka checkpoint topic " + name, Status: StatusOK}
	if in.found[name] == nil {
		f.Detail = "does not exist yet; walstream makes it at its first start"
		k.checkMakeable(ctx, &f, func(replicas int16, inSync string) topicSpec { return checkpointSpec(name, replicas, inSync) })
		return f
	}
	in.grade(&f, name, rightRead, rightWrite)
	if f.Status == StatusFail {
		return f
	}
	if n := len(in.found[name].Partitions); n != 1 {
		f.fail(errPartitions(name, n))
	} else if err := in.denied[name]; err != nil { // a start proves that it is compacted
		f.fail(k.cfg.denied(rightConfigs, topicResource(name), err))
		f.Remedy = k.cfg.grant(topicResource(name), rightConfigs)
	} else if policy := in.values[name][settingCleanup]; policy != cleanupCompact {
		f.fail(k.errForgets(name, policy))
	}
	return f
}

// checkHistoryTopic: what would keep a start from going on, or a replay from reading.
func (k *Kafka) checkHistoryTopic(ctx context.Context, in *inspection, name string) Finding {
	f := Finding{Name: "kafka history topic " + name, Status: StatusOK}
	if in.found[name] == nil {
		f.Detail = "does not exist yet; walstream makes it at its next start"
		k.checkMakeable(ctx, &f, func(replicas int16, inSync string) topicSpec {
			return historySpec(name, replicas, inSync, k.cfg.HistoryRetention)
		})
		return f
	}
	in.grade(&f, name, rightWrite)
	if f.Status == StatusFail {
		return f
	}
	if n := len(in.found[name].Partitions); n != 1 {
		f.fail(errHistoryPartitions(name, n))
	} else if err := in.denied[name]; err != nil { // a start proves that it is not compacted
		f.fail(k.cfg.denied(rightConfigs, topicResource(name), err))
		f.Remedy = k.cfg.grant(topicResource(name), rightConfigs)
	} else if policy := in.values[name][settingCleanup]; policy != cleanupDelete {
		f.fail(k.errThinsHistory(name, policy))
	} else if !allowed(in.found[name].AuthorizedOperations, rightRead) {
		f.Status, f.Detail = StatusWarn, k.cfg.denied(rightRead, topicResource(name), kerr.TopicAuthorizationFailed).Error()+"; it is written all the same, and no replay can read it"
		f.Remedy = k.cfg.grant(topicResource(name), rightRead)
	} else if off := k.historyRetentionOff(in.values[name]); off != nil {
		f.Status, f.Detail, f.Remedy = StatusWarn, off.Found, off.Remedy
	}
	return f
}

// checkLetters: what would turn a bad row into a stop.
func (k *Kafka) checkLetters(ctx context.Context, in *inspection, name string) Finding {
	f := Finding{Name: "kafka dead-letter topic " + name, Status: StatusOK}
	if in.found[name] == nil {
		f.Detail = "does not exist yet; walstream makes it at its first start with on-poison dead-letter"
		k.checkMakeable(ctx, &f, func(replicas int16, inSync string) topicSpec { return deadLetterSpec(name, replicas, inSync) })
		return f
	}
	in.grade(&f, name, rightWrite)
	if policy := in.values[name][settingCleanup]; f.Status != StatusFail && strings.Contains(policy, cleanupCompact) {
		f.fail(k.errForgetsLetters(name, policy))
	}
	return f
}

func (k *Kafka) checkTransactionState(in *inspection) Finding {
	f := Finding{Name: "kafka " + transactionState, Status: StatusOK}
	if in.found[transactionState] == nil {
		f.Detail = "does not exist yet; the brokers make it with the first transaction, as transaction.state.log.replication.factor and transaction.state.log.min.isr say"
		return f
	}
	in.grade(&f, transactionState)
	if isAccess(f.Err) { // not ours to see
		f.Status, f.Detail, f.Remedy = StatusWarn, "may not be described with our rights; its replication factor should be 3", ""
	}
	return f
}

func (k *Kafka) checkTopic(ctx context.Context, in *inspection, name string) Finding {
	f := Finding{Name: "kafka topic " + name, Status: StatusOK}
	switch err := outbox.CheckTopic(name); {
	case err != nil:
		f.fail(err)
	case in.found[name] == nil && k.cfg.CreateTopics:
		f.Detail = "does not exist; walstream makes it with the first row"
		k.checkMakeable(ctx, &f, func(int16, string) topicSpec { return k.specOf(name) })
	case in.found[name] == nil:
		f.Status, f.Detail = StatusFail, "does not exist"
		f.Remedy = k.cfg.command("kafka-topics", "--create --topic %s", name) + ", or --create-topics"
	default:
		in.grade(&f, name, rightWrite)
	}
	return f
}

func (f *Finding) fail(err error) {
	f.Status, f.Detail, f.Err = StatusFail, err.Error(), err
	var setup *SetupError
	if errors.As(err, &setup) {
		f.Detail, f.Remedy = setup.Found, setup.Remedy
	}
}

// grade compares an existing topic with what the promises assume (design,
// section 1), and our rights on it with those needed.
func (in *inspection) grade(f *Finding, name string, rights ...string) {
	topic := in.found[name]
	if err := topicError(topic); isAccess(err) {
		f.fail(in.cfg.denied(rightDescribe, topicResource(name), err))
		f.Remedy = in.cfg.grant(topicResource(name), rightDescribe)
		return
	} else if err != nil {
		f.fail(err)
		f.Remedy = "check again in a moment"
		return
	}
	for _, right := range rights {
		if !allowed(topic.AuthorizedOperations, right) {
			f.fail(in.cfg.denied(right, topicResource(name), kerr.TopicAuthorizationFailed))
			f.Remedy = in.cfg.grant(topicResource(name), right)
			return
		}
	}
	replicas, inSync := smallest(topic.Partitions)
	f.Detail = fmt.Sprintf("%d partitions, replication factor %d", len(topic.Partitions), replicas)
	var weak []string
	if replicas < wantReplicas {
		weak = append(weak, fmt.Sprintf("replication factor %d: raise it to %d", replicas, wantReplicas))
	}
	settings := in.values[name]
	if in.denied[name] != nil {
		weak = append(weak, "its settings may not be read: grant DescribeConfigs, or large rows are judged by Kafka's default limit")
	} else {
		minISR, _ := strconv.Atoi(settings[settingMinISR])
		f.Detail += fmt.Sprintf(", min.insync.replicas %d, max.message.bytes %s", minISR, settings[settingMaxMessage])
		if minISR > inSync {
			f.Status = StatusFail
			f.Detail += fmt.Sprintf("; only %d replicas are in sync, so nothing can be written", inSync)
			f.Remedy = "bring the missing brokers back, or lower min.insync.replicas below the replication factor"
			return
		}
		if minISR < wantInSync {
			weak = append(weak, fmt.Sprintf("min.insync.replicas %d: set it to %d", minISR, wantInSync))
		}
		if settings[settingUnclean] == "true" {
			weak = append(weak, "unclean.leader.election.enable is true: a broker that lags may become leader and drop acknowledged records")
		}
	}
	if len(weak) > 0 {
		f.Status, f.Remedy = StatusWarn, strings.Join(weak, "; ")
	}
}

// smallest replication factor and in-sync set of the partitions.
func smallest(partitions []kmsg.MetadataResponseTopicPartition) (replicas, inSync int) {
	for i, p := range partitions {
		if i == 0 || len(p.Replicas) < replicas {
			replicas = len(p.Replicas)
		}
		if i == 0 || len(p.ISR) < inSync {
			inSync = len(p.ISR)
		}
	}
	return replicas, inSync
}

// allowed reads the broker's bit field of operations; a broker that does not
// tell allows everything.
func allowed(operations int32, right string) bool {
	const untold = -1 << 31
	bit := map[string]kmsg.ACLOperation{rightRead: kmsg.ACLOperationRead, rightWrite: kmsg.ACLOperationWrite}[right]
	return operations == untold || operations == 0 || operations&(1<<bit) != 0
}
