package cases

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/walstream/walstream/internal/service"
	"github.com/walstream/walstream/internal/testenv"
)

// A broker that has forgotten its producers, or has dropped their records by
// retention: rows go on, by themselves, in order.
func TestC55BrokerForgotTheProducer(t *testing.T) {
	// Shorter than the time between two checkpoints of an idle pipeline, which are
	// what keeps the broker from forgetting it.
	const idle = 2 * time.Second
	kafka := testenv.NewKafka(t, testenv.KafkaOptions{Real: true, Props: map[string]string{
		"producer.id.expiration.ms":                                   millis(idle),
		"producer.id.expiration.check.interval.ms":                    "200",
		"transactional.id.expiration.ms":                              millis(idle),
		"transaction.remove.expired.transaction.cleanup.interval.ms":  "200",
		"transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
	}})
	rigs := bothOn(t, testenv.SharedPostgres(t, 0), kafka.Brokers)
	services := make([]*service.Service, len(rigs))
	for i, r := range rigs {
		services[i] = r.warm("--status-interval", "5s") // what is written meanwhile on its own account is not idleness
	}
	for _, step := range []struct {
		name  string
		fault func(*rig)
	}{
		{"idleness", (*rig).forgotten},
		{"retention", (*rig).deleteRecords},
		{"retention and idleness", func(r *rig) { r.deleteRecords(); r.forgotten() }},
	} {
		t.Run(step.name, func(t *testing.T) {
			for _, r := range rigs {
				step.fault(r)
			}
			each(t, rigs, func(t *testing.T, r *rig) {
				since := r.lastSeq()
				r.put(8)
				r.untilConfirmed()
				r.verifySince(since)
				if s := services[indexOf(rigs, r)]; strings.Contains(s.Log(), "does not know what it acknowledged") {
					t.Errorf("idleness is taken for a loss:\n%s", s.Log())
				}
			})
		})
	}
}

func millis(d time.Duration) string { return itoa(int(d.Milliseconds())) }

// forgotten waits until the broker knows neither the transactional ids of the
// pipeline nor a producer of its topic.
func (r *rig) forgotten() {
	r.t.Helper()
	r.until("the broker to forget", func() bool {
		for _, lane := range []string{".0", ".1"} {
			found, err := r.admin.DescribeTransactions(r.ctx, "walstream."+r.pipeline+lane)
			if err != nil || !errors.Is(found["walstream."+r.pipeline+lane].Err, kerr.TransactionalIDNotFound) {
				return false
			}
		}
		producers, err := r.admin.DescribeProducers(r.ctx, kadm.TopicsSet{r.topic: {0: {}, 1: {}, 2: {}}})
		known := 0
		producers.EachProducer(func(kadm.DescribedProducer) { known++ })
		return err == nil && known == 0
	})
}

// deleteRecords is what retention does, at once.
func (r *rig) deleteRecords() {
	r.t.Helper()
	ends, err := r.admin.ListEndOffsets(r.ctx, r.topic)
	r.check(err)
	_, err = r.admin.DeleteRecords(r.ctx, ends.Offsets())
	r.check(err)
}

// An unclean election: a broker that has not what its predecessor acknowledged
// becomes the leader. The rows are lost in Kafka, whatever we do; it is told.
func TestC55UncleanElection(t *testing.T) {
	kafka := threeBrokers(t)
	rigs := bothOn(t, testenv.SharedPostgres(t, 0), kafka.Brokers)
	services := make([]*service.Service, len(rigs))
	for i, r := range rigs {
		r.uncleanTopic()
		services[i] = r.warm()
		r.put(20)
		r.untilConfirmed()
		r.inSync(r.topic)
	}
	rigs[0].check(kafka.Stop(1)) // brokers count from 1: the follower
	const lost = 10
	for _, r := range rigs {
		r.put(lost)
		r.untilConfirmed()
	}
	rigs[0].check(kafka.Kill(0))
	rigs[0].check(kafka.Start(rigs[0].ctx, 1))
	for _, r := range rigs {
		r.until("the follower to lead", func() bool {
			topics, err := r.admin.ListTopics(r.ctx, r.topic)
			return err == nil && topics[r.topic].Partitions[0].Leader == 2
		})
	}
	each(t, rigs, func(t *testing.T, r *rig) {
		s := services[indexOf(rigs, r)]
		since := r.lastSeq()
		r.put(20)
		r.untilConfirmed()
		r.verifySince(since)
		if got := len(r.published()); got != 1+20+20 {
			t.Fatalf("%d records, want the %d that were lost to be lost: the case proves nothing", got, lost)
		}
		if !strings.Contains(s.Log(), "what it acknowledged before") {
			t.Errorf("the loss is not told:\n%s", s.Log())
		}
		if code, report := r.audit(); code != 9 || !regexp.MustCompile(`missing +10\n`).MatchString(report) {
			t.Errorf("audit: exit code %d, want 9 and 10 missing\n%s", code, report)
		}
	})
}

// uncleanTopic has two replicas, of which one has to be in sync.
func (r *rig) uncleanTopic() {
	r.t.Helper()
	one, yes := "1", "true"
	_, err := r.admin.CreateTopics(r.ctx, 1, 2, map[string]*string{"min.insync.replicas": &one, "unclean.leader.election.enable": &yes}, r.topic)
	r.check(err)
	var move kadm.AlterPartitionAssignmentsReq
	move.Assign(r.topic, 0, []int32{1, 2})
	_, err = r.admin.AlterPartitionAssignments(r.ctx, move)
	r.check(err)
	r.until("the first broker to lead", func() bool {
		_, err := r.admin.ElectLeaders(r.ctx, kadm.ElectPreferredReplica, kadm.TopicsSet{r.topic: {0: {}}})
		r.check(err)
		topics, err := r.admin.ListTopics(r.ctx, r.topic)
		if err != nil || len(topics[r.topic].Partitions) == 0 {
			return false
		}
		p := topics[r.topic].Partitions[0]
		return p.Leader == 1 && len(p.ISR) == 2 && len(p.Replicas) == 2
	})
}

// audit compares table and topics.
func (r *rig) audit() (code int, report string) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.ctx, time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, r.binary, append([]string{"audit"}, r.args()...)...)
	cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, service.EnvBinary+"=") })
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		r.t.Fatal(err)
	}
	if exit != nil {
		code = exit.ExitCode()
	}
	return code, string(out)
}
