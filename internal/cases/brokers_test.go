package cases

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/walstream/walstream/internal/service"
	"github.com/walstream/walstream/internal/testenv"
)

// Two of three brokers are gone: nothing is acknowledged, so nothing is confirmed;
// health turns red; when they are back everything goes on by itself.
func TestC52TwoOfThreeBrokersGone(t *testing.T) {
	kafka := threeBrokers(t)
	rigs := bothOn(t, testenv.SharedPostgres(t, 0), kafka.Brokers)
	services := make([]*service.Service, len(rigs))
	ends := make([]uint64, len(rigs))
	for i, r := range rigs {
		services[i] = r.warm("--stall-timeout", "3s", "--status-interval", "1s")
	}
	rigs[0].check(kafka.Stop(1))
	rigs[0].check(kafka.Kill(2)) // the quorum that it would take leave of is gone with it
	for i, r := range rigs {
		r.put(10)
		ends[i] = uint64(r.walEnd())
		body := r.healthTurns(services[i], http.StatusServiceUnavailable)
		if !strings.Contains(body, "Kafka") {
			t.Errorf("red health does not name Kafka: %s", body)
		}
	}
	rigs[0].during(scaled(60*time.Second), func() {
		for i, r := range rigs {
			if confirmed, _ := r.confirmed(); uint64(confirmed) >= ends[i] {
				t.Errorf("%s: confirmed %s with one replica in sync", r.delivery, confirmed)
			}
		}
	})
	rigs[0].check(kafka.Start(rigs[0].ctx))
	each(t, rigs, func(t *testing.T, r *rig) {
		s := services[indexOf(rigs, r)]
		r.healthTurns(s, http.StatusOK)
		r.put(10)
		r.untilConfirmed()
		status, err := s.Status(r.ctx)
		r.check(err)
		t.Logf("%d duplicates, restarts %v", r.verify(), status.Restarts)
	})
}

// Every broker in turn is stopped and started again while rows are written: in
// good order, as an upgrade does, and one of them killed.
func TestC52RollingRestartUnderLoad(t *testing.T) {
	kafka := threeBrokers(t)
	rigs := bothOn(t, testenv.SharedPostgres(t, 0), kafka.Brokers)
	services := make([]*service.Service, len(rigs))
	var stops []func()
	for i, r := range rigs {
		services[i] = r.warm()
		stops = append(stops, r.load())
	}
	for node := range kafka.Brokers {
		end := kafka.Stop
		if node == 1 {
			end = kafka.Kill
		}
		rigs[0].check(end(node))
		rigs[0].check(kafka.Start(rigs[0].ctx, node))
		for _, r := range rigs {
			r.inSync(r.topic, "walstream.checkpoints."+r.pipeline, "__transaction_state")
		}
	}
	for _, stop := range stops {
		stop()
	}
	each(t, rigs, func(t *testing.T, r *rig) {
		r.untilConfirmed()
		status, err := services[indexOf(rigs, r)].Status(r.ctx)
		r.check(err)
		t.Logf("%d duplicates among %d rows, restarts %v", r.verify(), status.Events, status.Restarts)
	})
}

// inSync waits until every replica of the topics has what its leader has.
func (r *rig) inSync(topics ...string) {
	r.t.Helper()
	r.until("all replicas to be in sync", func() bool {
		found, err := r.admin.ListTopics(r.ctx, topics...)
		behind := err != nil
		found.EachPartition(func(p kadm.PartitionDetail) {
			behind = behind || p.Err != nil || p.Leader < 0 || len(p.ISR) < len(p.Replicas)
		})
		return !behind
	})
}

func indexOf(rigs []*rig, r *rig) int {
	for i := range rigs {
		if rigs[i] == r {
			return i
		}
	}
	return -1
}

// A topic that asks for more replicas in sync than it has: the broker answers, and
// acknowledges nothing. Which topic, and why, is told.
func TestC52TooFewReplicasInSync(t *testing.T) {
	kafka := threeBrokers(t)
	rigs := bothOn(t, testenv.SharedPostgres(t, 0), kafka.Brokers)
	services := make([]*service.Service, len(rigs))
	for i, r := range rigs {
		services[i] = r.warm("--stall-timeout", "3s", "--status-interval", "1s")
		r.alter(r.topic, "min.insync.replicas", "3")
	}
	rigs[0].check(kafka.Stop(2))
	for i, r := range rigs {
		r.put(3)
		end := r.walEnd()
		r.until("red health that names the topic and the setting", func() bool {
			body := r.healthTurns(services[i], http.StatusServiceUnavailable)
			return strings.Contains(body, r.topic) && strings.Contains(body, "has 2 of its replicas") && strings.Contains(body, "min.insync.replicas is 3")
		})
		r.notBeyond(end)
		r.alter(r.topic, "min.insync.replicas", "2") // the way out
	}
	each(t, rigs, func(t *testing.T, r *rig) {
		s := services[indexOf(rigs, r)]
		r.healthTurns(s, http.StatusOK)
		r.untilConfirmed()
		if duplicates := r.verify(); duplicates != 0 {
			t.Errorf("%d duplicates", duplicates)
		}
		if status, err := s.Status(r.ctx); err != nil || len(status.Restarts) > 0 {
			t.Errorf("restarts %v (%v)", status.Restarts, err)
		}
	})
}

// One replica where two are asked for: these brokers are content with all that
// there are, so it is no dead end. (Older ones refuse, as in the case above.)
func TestC52OneReplicaOfTwo(t *testing.T) { inBoth(t, oneReplicaOfTwo) }

func oneReplicaOfTwo(t *testing.T) {
	r := newRig(t, testenv.SharedPostgres(t, 0), threeBrokers(t).Brokers)
	two := "2"
	_, err := r.admin.CreateTopics(r.ctx, 1, 1, map[string]*string{"min.insync.replicas": &two}, r.topic)
	r.check(err)
	r.stream()
	r.put(3)
	r.untilConfirmed()
	r.verify()
}

func (r *rig) alter(topic, name, value string) {
	r.t.Helper()
	_, err := r.admin.AlterTopicConfigs(r.ctx, []kadm.AlterConfig{{Name: name, Value: &value}}, topic)
	r.check(err)
}

// Fewer acknowledgements than all cannot be asked for.
func TestC52NoWeakerAcks(t *testing.T) {
	t.Parallel()
	r := sharedRig(t)
	for _, name := range []string{"--acks", "--kafka-acks"} {
		s := r.start(name, "1")
		if code := r.ends(s, 10*time.Second); code != 2 || !strings.Contains(s.Log(), name) {
			t.Errorf("%s: exit code %d\n%s", name, code, s.Log())
		}
	}
}
