package cases

import (
	"context"
	"net/http"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/walstream/walstream/internal/rollout"
	"github.com/walstream/walstream/internal/service"
	"github.com/walstream/walstream/internal/testenv"
)

// Pods of deploy/kubernetes under rows that never stop coming.

// A rolling update by the probes, strategy and grace of the manifest comes to its
// end, whichever pod is replaced first, and never do two publish.
func TestRollingUpdate(t *testing.T) { inBothAtOnce(t, rollingUpdate) }

func rollingUpdate(t *testing.T) {
	r := sharedRig(t)
	c := r.cluster(map[string]string{exactlyOnce: "streaming", atLeastOnce: "standby"}[r.delivery])
	ctx, cancel := context.WithTimeout(r.ctx, time.Minute)
	defer cancel()
	r.check(c.Update(ctx, 1))
	end := r.putSteadily()
	seen := r.watchSlot()
	for revision := 2; revision <= 3; revision++ {
		r.check(c.Update(ctx, revision))
	}
	end()
	r.untilConfirmed()
	seen()
	if c.Dead > 0 || c.Ended > 0 || c.Killed.Load() > 0 {
		t.Errorf("SIGTERM was not enough, or a pod ended by itself: %s", c)
	}
	if duplicates := r.verify(); duplicates > 0 {
		t.Errorf("%d duplicates", duplicates)
	}
	r.onePublisher()
	if code, report := r.audit(); code != 0 {
		t.Errorf("walstream audit ends with %d\n%s", code, report)
	}
}

// Liveness fails only when the loop is dead: an outage of the broker makes red
// what monitors ask, and kills no pod; one that hangs is started again.
func TestPodsOutliveAnOutage(t *testing.T) {
	t.Parallel()
	r, proxy := proxiedRig(t, testenv.SharedPostgres(t, 0))
	c := r.cluster("streaming", "--stall-timeout", scaled(30*time.Second).String(), "--status-interval", scaled(5*time.Second).String())
	ctx, cancel := context.WithTimeout(r.ctx, time.Minute)
	defer cancel()
	r.check(c.Update(ctx, 1))
	r.put(1)
	r.untilConfirmed()
	proxy.Blackhole()
	r.put(10)
	active := c.First(c.Pods)
	r.until("a red /healthz", func() bool {
		r.check(c.Run(r.ctx, 100*time.Millisecond))
		return !active.Process.Probe("/healthz", time.Second)
	})
	var probes time.Duration
	for range c.Liveness.Failures + 1 {
		probes += c.Liveness.Period
	}
	r.check(c.Run(r.ctx, probes))
	if c.Dead > 0 || c.Ended > 0 {
		t.Fatalf("an outage of the broker: %s", c)
	}
	proxy.Restore()
	r.untilConfirmed()

	// The pod may have left the slot to the other one meanwhile.
	active = c.First(c.Pods)
	r.check(freeze(active.Process.(container).PID()))
	r.put(10)
	r.until("a start of the pod that hangs", func() bool {
		r.check(c.Run(r.ctx, 100*time.Millisecond))
		return c.Dead > 0
	})
	r.untilConfirmed()
	if r.verify(); c.Dead != 1 || c.Ended > 0 {
		t.Errorf("a pod that hangs: %s", c)
	}
}

// container is walstream in a pod.
type container struct{ *service.Service }

func (c container) Probe(path string, timeout time.Duration) bool {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	code, _, err := c.Get(ctx, path)
	return err == nil && code == http.StatusOK
}

func (c container) Terminate(grace time.Duration) (killed bool) {
	_ = c.Signal(syscall.SIGTERM) // it may have ended
	select {
	case <-c.Done():
		return false
	case <-time.After(grace):
		c.Kill()
		return true
	}
}

func (c container) Exited() bool {
	select {
	case <-c.Done():
		return true
	default:
		return false
	}
}

// cluster of the plain manifest's pods; the times between probes are scaled. The
// first to be replaced is the one in that state.
func (r *rig) cluster(first string, args ...string) *rollout.Cluster {
	r.t.Helper()
	d, err := rollout.Read("../../deploy/kubernetes/plain/deployment.yaml")
	r.check(err)
	if !full() {
		d = d.Faster(10)
	}
	c := &rollout.Cluster{
		Deployment: d,
		Start:      func(int) (rollout.Process, error) { return container{r.start(args...)}, nil },
		First: func(old []*rollout.Pod) *rollout.Pod {
			for _, p := range old {
				if status, err := p.Process.(container).Status(r.ctx); err == nil && status.State == first {
					return p
				}
			}
			return old[0]
		},
	}
	r.t.Cleanup(c.Close)
	return c
}

// putSteadily commits a row every 10 ms until end is called.
func (r *rig) putSteadily() (end func()) {
	r.t.Helper()
	conn := r.connect()
	ctx, cancel := context.WithCancel(r.ctx)
	var running sync.WaitGroup
	running.Go(func() {
		for ctx.Err() == nil {
			if _, err := conn.Exec(r.ctx, putSQL, 1); err != nil {
				r.t.Error(err)
				return
			}
			select {
			case <-ctx.Done():
			case <-time.After(10 * time.Millisecond):
			}
		}
	})
	return func() {
		cancel()
		running.Wait()
	}
}

// watchSlot looks who holds the slot until seen is called: one at a time, none
// comes back, and there was more than one.
func (r *rig) watchSlot() (seen func()) {
	r.t.Helper()
	conn := r.connect()
	ctx, cancel := context.WithCancel(r.ctx)
	var holders []int
	var running sync.WaitGroup
	running.Go(func() {
		for ctx.Err() == nil {
			var walsenders, holder int
			err := conn.QueryRow(r.ctx, `SELECT count(*) FILTER (WHERE state = 'streaming'), (SELECT coalesce(active_pid, 0) FROM pg_replication_slots
				WHERE slot_name = $1) FROM pg_stat_replication WHERE application_name = $2`, r.slot, r.pipeline).Scan(&walsenders, &holder)
			if err != nil || walsenders > 1 {
				r.t.Errorf("%d walsenders stream (%v)", walsenders, err)
				return
			}
			if holder != 0 && (len(holders) == 0 || holders[len(holders)-1] != holder) {
				holders = append(holders, holder)
			}
			select {
			case <-ctx.Done():
			case <-time.After(5 * time.Millisecond):
			}
		}
	})
	return func() {
		cancel()
		running.Wait()
		once := map[int]bool{}
		for _, pid := range holders {
			if once[pid] {
				r.t.Errorf("walsender %d held the slot again: %v", pid, holders)
			}
			once[pid] = true
		}
		if len(holders) < 2 {
			r.t.Errorf("the slot never changed hands: %v", holders)
		}
	}
}

// onePublisher: in no partition is a record of an instance behind one of the
// instance that took over from it. A producer id belongs to one instance, in
// exactly-once with its epoch: a later instance has the same id and a higher one.
func (r *rig) onePublisher() {
	r.t.Helper()
	type producer struct {
		partition int32
		id        int64
	}
	instances := map[[2]int64]bool{}
	epochs, last, ended := map[producer]int16{}, map[int32]producer{}, map[producer]bool{}
	for _, rec := range r.published() {
		p := producer{rec.Partition, rec.ProducerID}
		instances[[2]int64{rec.ProducerID, int64(rec.ProducerEpoch)}] = true
		if epoch, ok := epochs[p]; ok && rec.ProducerEpoch < epoch {
			r.t.Errorf("offset %d of %+v: epoch %d behind %d", rec.Offset, p, rec.ProducerEpoch, epoch)
		}
		epochs[p] = rec.ProducerEpoch
		if r.delivery == exactlyOnce { // two lanes take turns
			continue
		}
		if before, ok := last[rec.Partition]; ok && before != p {
			ended[before] = true
		}
		if last[rec.Partition] = p; ended[p] {
			r.t.Errorf("offset %d of %+v lies behind its successor's", rec.Offset, p)
		}
	}
	if len(instances) < 2 {
		r.t.Errorf("records of one instance only: %v", instances)
	}
}

// What the kubelet keeps of a container that failed (FallbackToLogsOnError: 80
// lines, 2048 bytes) has the refusal in it, with its way out.
func TestTerminationMessageIsTheRefusal(t *testing.T) {
	t.Parallel()
	manifest, err := os.ReadFile("../../deploy/kubernetes/plain/deployment.yaml")
	if err != nil || !strings.Contains(string(manifest), "terminationMessagePolicy: FallbackToLogsOnError") {
		t.Fatal("the manifest keeps no log: ", err)
	}
	r := sharedRig(t)
	r.exec(`SELECT pg_create_logical_replication_slot($1, 'pgoutput')`, r.slot)
	s := r.start()
	if code := r.ends(s, time.Minute); code == 0 {
		t.Fatal("a slot without a checkpoint is taken")
	}
	kept := s.Log()
	if lines := strings.Split(kept, "\n"); len(lines) > 80 {
		kept = strings.Join(lines[len(lines)-80:], "\n")
	}
	if kept = kept[max(0, len(kept)-2048):]; !strings.Contains(kept, "remedy: ") || !strings.Contains(kept, "pg_drop_replication_slot") {
		t.Errorf("the last of the log is no refusal: %s", kept)
	}
}
