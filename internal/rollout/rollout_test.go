package rollout

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// slot is what instances share: the lock.
type slot struct {
	mu     sync.Mutex
	holder *instance
}

func (s *slot) is(i *instance) bool { s.mu.Lock(); defer s.mu.Unlock(); return s.holder == i }

// instance behaves like walstream as far as a cluster sees.
type instance struct {
	slot   *slot
	broken func(streaming bool) bool // it ends by itself
	stop   context.CancelFunc
	ended  chan struct{}
	hangs  bool
}

func (s *slot) start(broken func(streaming bool) bool) *instance {
	ctx, stop := context.WithCancel(context.Background())
	i := &instance{slot: s, broken: broken, stop: stop, ended: make(chan struct{})}
	go func() {
		defer close(i.ended)
		for ctx.Err() == nil {
			s.mu.Lock()
			if s.holder == nil {
				s.holder = i
			}
			ends := broken != nil && broken(s.holder == i)
			s.mu.Unlock()
			if ends {
				break
			}
			select {
			case <-ctx.Done():
			case <-time.After(300 * time.Millisecond):
			}
		}
		s.mu.Lock()
		if s.holder == i {
			s.holder = nil
		}
		s.mu.Unlock()
	}()
	return i
}

func (i *instance) Probe(path string, _ time.Duration) bool {
	if i.Exited() || i.hangs {
		return false
	}
	return path != "/streaming" || i.slot.is(i)
}

func (i *instance) Terminate(time.Duration) bool { i.stop(); <-i.ended; return i.hangs }

func (i *instance) Exited() bool {
	select {
	case <-i.ended:
		return true
	default:
		return false
	}
}

func plain(t *testing.T) Deployment {
	t.Helper()
	d, err := Read("../../deploy/kubernetes/plain/deployment.yaml")
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// TestUpdate of two working pods, by what the manifest says and what it might say.
func TestUpdate(t *testing.T) {
	never := func(bool) bool { return false }
	onceStreaming := func(streaming bool) bool { return streaming }
	for _, c := range []struct {
		name     string
		change   func(*Deployment)
		broken   [2]func(streaming bool) bool // by revision
		deadlock bool
		oldLeft  int
	}{
		{"as it stands", nil, [2]func(bool) bool{never, never}, false, 0},
		{"only the streaming one is ready", func(d *Deployment) { d.Readiness.Path = "/streaming" }, [2]func(bool) bool{never, never}, true, 2},
		{"one may be missing", func(d *Deployment) { d.MaxUnavailable, d.MaxSurge = 1, 0 }, [2]func(bool) bool{never, never}, false, 0},
		// Standing by is ready, whatever an instance will do when it streams.
		{"the new version stops when it takes over", nil, [2]func(bool) bool{never, onceStreaming}, false, 0},
		{"the old version stopped, the new one is the remedy", nil, [2]func(bool) bool{onceStreaming, never}, false, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := plain(t)
				if c.change != nil {
					c.change(&d)
				}
				s := &slot{}
				cluster := &Cluster{
					Deployment: d,
					Start:      func(revision int) (Process, error) { return s.start(c.broken[revision-1]), nil },
					// The one that streams goes first.
					First: func(old []*Pod) *Pod {
						for _, p := range old {
							if s.is(p.Process.(*instance)) {
								return p
							}
						}
						return old[0]
					},
				}
				defer cluster.Close()
				first, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				_ = cluster.Update(first, 1) // one that stops never comes up whole
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
				defer cancel()
				if err := cluster.Update(ctx, 2); errors.Is(err, ErrDeadlock) != c.deadlock {
					t.Errorf("update: %v", err)
				}
				old := 0
				for _, p := range cluster.Pods {
					if p.Revision == 1 {
						old++
					}
				}
				if old != c.oldLeft {
					t.Errorf("%d old pods are left, want %d: %s", old, c.oldLeft, cluster)
				}
				if cluster.Dead > 0 || cluster.Killed.Load() > 0 {
					t.Errorf("%s", cluster)
				}
			})
		})
	}
}

// TestLiveness: a pod that hangs is started again after the probe's failures.
func TestLiveness(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &slot{}
		cluster := &Cluster{Deployment: plain(t), Start: func(int) (Process, error) { return s.start(nil), nil }}
		defer cluster.Close()
		if err := cluster.Update(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
		hung := cluster.Pods[0].Process.(*instance)
		hung.hangs = true
		began := time.Now()
		for cluster.Dead == 0 && time.Since(began) < time.Hour {
			if err := cluster.Run(t.Context(), time.Second); err != nil {
				t.Fatal(err)
			}
		}
		if took := time.Since(began); took < 20*time.Second || took > 40*time.Second || cluster.Killed.Load() != 1 {
			t.Errorf("after %s: %s", took, cluster)
		}
		if cluster.Pods[0].Process == Process(hung) || cluster.Pods[0].Process.Exited() {
			t.Error("it was not started again")
		}
	})
}

// TestRead refuses a manifest that leaves to the API what decides an update.
func TestRead(t *testing.T) {
	text, err := os.ReadFile("../../deploy/kubernetes/plain/deployment.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{"kind: Deployment", "rollingUpdate:", "readinessProbe:", "livenessProbe:", "failureThreshold: 3", "terminationGracePeriodSeconds: 30"} {
		path := filepath.Join(t.TempDir(), "deployment.yaml")
		if err := os.WriteFile(path, []byte(strings.ReplaceAll(string(text), part, "x"+part)), 0o644); err != nil {
			t.Fatal(err)
		}
		if d, err := Read(path); err == nil {
			t.Errorf("without %s it is read as %+v", part, d)
		}
	}
	if d := plain(t).Faster(10); d.Grace != 3*time.Second || d.Readiness.Period != 200*time.Millisecond || d.Readiness.Timeout != 2*time.Second {
		t.Errorf("ten times as fast: %+v", d)
	}
}
