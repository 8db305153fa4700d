package rollout

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Process is the container of a pod.
type Process interface {
	// Probe reports whether the path answers with success in time.
	Probe(path string, timeout time.Duration) bool
	// Terminate asks it to stop, kills it after the grace, and returns when it has
	// ended; killed tells whether it took that.
	Terminate(grace time.Duration) (killed bool)
	// Exited reports that it has ended.
	Exited() bool
}

// Pod is one of the Deployment's.
type Pod struct {
	Revision int
	Process  Process

	ready                   bool
	readySince              time.Time
	nextReady, nextLive     time.Time
	failedReady, failedLive int
}

// Cluster holds the pods of one Deployment.
type Cluster struct {
	Deployment
	// Start a container of the revision.
	Start func(revision int) (Process, error)
	// First says which of the old pods that work is replaced first.
	First func(old []*Pod) *Pod

	Pods []*Pod // without those being terminated
	// Dead counts the containers that a failed liveness probe ended, Ended those
	// that ended by themselves, and Killed those that took longer than the grace.
	Dead, Ended int
	Killed      atomic.Int32

	terminating sync.WaitGroup
}

const tick = 50 * time.Millisecond

// ErrDeadlock is an update that does not come to its end.
var ErrDeadlock = errors.New("the update does not come to its end")

// Update brings every pod to the revision, as kubectl apply and rollout status
// do. The context bounds it.
func (c *Cluster) Update(ctx context.Context, revision int) error {
	for {
		if err := c.step(time.Now(), revision); err != nil {
			return err
		}
		if c.done(time.Now(), revision) {
			c.terminating.Wait()
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: %s", ErrDeadlock, c)
		case <-time.After(tick):
		}
	}
}

// Run leaves the pods to the kubelet for a while.
func (c *Cluster) Run(ctx context.Context, d time.Duration) error {
	for end := time.Now().Add(d); time.Now().Before(end); {
		if err := c.kubelet(time.Now()); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(tick):
		}
	}
	return nil
}

// Close terminates every pod.
func (c *Cluster) Close() {
	for _, p := range slices.Clone(c.Pods) {
		c.remove(p)
	}
	c.terminating.Wait()
}

func (c *Cluster) String() string {
	text := ""
	for _, p := range c.Pods {
		text += fmt.Sprintf("[revision %d, ready %v] ", p.Revision, p.ready)
	}
	return text + fmt.Sprintf("%d ended, %d dead, %d killed", c.Ended, c.Dead, c.Killed.Load())
}

func (c *Cluster) step(now time.Time, revision int) error {
	if err := c.kubelet(now); err != nil {
		return err
	}
	return c.controller(now, revision)
}

// kubelet probes the pods, and starts containers again that have ended or have
// failed their liveness probe.
func (c *Cluster) kubelet(now time.Time) error {
	for _, p := range c.Pods {
		switch {
		case p.Process.Exited():
			c.Ended++
		case c.failsLiveness(p, now):
			c.Dead++
			if p.Process.Terminate(c.Grace) {
				c.Killed.Add(1)
			}
		default:
			c.probeReadiness(p, now)
			continue
		}
		process, err := c.Start(p.Revision)
		if err != nil {
			return err
		}
		*p = *c.pod(p.Revision, process, time.Now())
	}
	return nil
}

func (c *Cluster) pod(revision int, process Process, now time.Time) *Pod {
	return &Pod{
		Revision: revision, Process: process,
		nextReady: now.Add(c.Readiness.InitialDelay), nextLive: now.Add(c.Liveness.InitialDelay),
	}
}

func (c *Cluster) failsLiveness(p *Pod, now time.Time) bool {
	if now.Before(p.nextLive) {
		return false
	}
	p.nextLive = now.Add(c.Liveness.Period)
	if p.Process.Probe(c.Liveness.Path, c.Liveness.Timeout) {
		p.failedLive = 0
	} else {
		p.failedLive++
	}
	return p.failedLive >= c.Liveness.Failures
}

func (c *Cluster) probeReadiness(p *Pod, now time.Time) {
	if now.Before(p.nextReady) {
		return
	}
	p.nextReady = now.Add(c.Readiness.Period)
	if p.Process.Probe(c.Readiness.Path, c.Readiness.Timeout) {
		if !p.ready {
			p.ready, p.readySince = true, now
		}
		p.failedReady = 0
	} else if p.failedReady++; p.failedReady >= c.Readiness.Failures {
		p.ready = false
	}
}

// available: ready for long enough to count.
func (c *Cluster) available(p *Pod, now time.Time) bool {
	return p.ready && now.Sub(p.readySince) >= c.MinReady
}

// controller takes one step: a new pod, or an old one less.
func (c *Cluster) controller(now time.Time, revision int) error {
	var current, old, oldWorking []*Pod
	available, newUnavailable := 0, 0
	for _, p := range c.Pods {
		works := c.available(p, now)
		if works {
			available++
		}
		switch {
		case p.Revision != revision:
			if old = append(old, p); works {
				oldWorking = append(oldWorking, p)
			}
		default:
			if current = append(current, p); !works {
				newUnavailable++
			}
		}
	}
	if len(current) < c.Replicas && len(c.Pods) < c.Replicas+c.MaxSurge {
		process, err := c.Start(revision)
		if err != nil {
			return err
		}
		c.Pods = append(c.Pods, c.pod(revision, process, now))
		return nil
	}
	minAvailable := c.Replicas - c.MaxUnavailable
	switch {
	case len(old) == 0 || len(c.Pods)-minAvailable-newUnavailable <= 0:
	case len(oldWorking) < len(old):
		c.remove(old[slices.IndexFunc(old, func(p *Pod) bool { return !c.available(p, now) })])
	case available > minAvailable:
		c.remove(c.First(oldWorking))
	}
	return nil
}

// remove a pod: it gets its grace, and counts no more.
func (c *Cluster) remove(p *Pod) {
	c.Pods = slices.DeleteFunc(c.Pods, func(other *Pod) bool { return other == p })
	c.terminating.Go(func() {
		if p.Process.Terminate(c.Grace) {
			c.Killed.Add(1)
		}
	})
}

func (c *Cluster) done(now time.Time, revision int) bool {
	for _, p := range c.Pods {
		if p.Revision != revision || !c.available(p, now) {
			return false
		}
	}
	return len(c.Pods) == c.Replicas
}
