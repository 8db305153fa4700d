package rollout

import (
	"fmt"
	"os"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"
)

// Deployment is what of a manifest decides how an update goes.
type Deployment struct {
	Replicas, MaxSurge, MaxUnavailable int
	MinReady, Grace                    time.Duration
	Readiness, Liveness                Probe
}

// Probe of a container over HTTP.
type Probe struct {
	Path                          string
	InitialDelay, Period, Timeout time.Duration
	Failures                      int
}

type probeManifest struct {
	HTTPGet             struct{ Path, Port string } `yaml:"httpGet"`
	InitialDelaySeconds int                         `yaml:"initialDelaySeconds"`
	PeriodSeconds       int                         `yaml:"periodSeconds"`
	TimeoutSeconds      int                         `yaml:"timeoutSeconds"`
	FailureThreshold    int                         `yaml:"failureThreshold"`
}

// Read the Deployment in a file of YAML. What decides an update has to stand
// there: a default of the API is an error.
func Read(path string) (Deployment, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return Deployment{}, err
	}
	var m struct {
		Kind string `yaml:"kind"`
		Spec struct {
			Replicas        int `yaml:"replicas"`
			MinReadySeconds int `yaml:"minReadySeconds"`
			Strategy        struct {
				Type          string `yaml:"type"`
				RollingUpdate *struct {
					MaxSurge       int `yaml:"maxSurge"`
					MaxUnavailable int `yaml:"maxUnavailable"`
				} `yaml:"rollingUpdate"`
			} `yaml:"strategy"`
			Template struct {
				Spec struct {
					Grace      int `yaml:"terminationGracePeriodSeconds"`
					Containers []struct {
						Readiness *probeManifest `yaml:"readinessProbe"`
						Liveness  *probeManifest `yaml:"livenessProbe"`
						Startup   *probeManifest `yaml:"startupProbe"`
					} `yaml:"containers"`
				} `yaml:"spec"`
			} `yaml:"template"`
		} `yaml:"spec"`
	}
	if err := yaml.Unmarshal(text, &m); err != nil {
		return Deployment{}, fmt.Errorf("%s: %w", path, err)
	}
	pod, update := m.Spec.Template.Spec, m.Spec.Strategy.RollingUpdate
	if m.Kind != "Deployment" || update == nil || len(pod.Containers) != 1 || pod.Containers[0].Readiness == nil ||
		pod.Containers[0].Liveness == nil || pod.Containers[0].Startup != nil || pod.Grace == 0 {
		return Deployment{}, fmt.Errorf("%s: not a Deployment of one container with rollingUpdate, readiness and liveness probe, no startup probe, and a grace period", path)
	}
	d := Deployment{
		Replicas: m.Spec.Replicas, MaxSurge: update.MaxSurge, MaxUnavailable: update.MaxUnavailable,
		MinReady: seconds(m.Spec.MinReadySeconds), Grace: seconds(pod.Grace),
	}
	for probe, from := range map[*Probe]*probeManifest{&d.Readiness: pod.Containers[0].Readiness, &d.Liveness: pod.Containers[0].Liveness} {
		if !strings.HasPrefix(from.HTTPGet.Path, "/") || from.PeriodSeconds*from.TimeoutSeconds*from.FailureThreshold == 0 {
			return Deployment{}, fmt.Errorf("%s: a probe without path, period, time-out or threshold", path)
		}
		*probe = Probe{
			Path: from.HTTPGet.Path, InitialDelay: seconds(from.InitialDelaySeconds), Period: seconds(from.PeriodSeconds),
			Timeout: seconds(from.TimeoutSeconds), Failures: from.FailureThreshold,
		}
	}
	return d, nil
}

func seconds(n int) time.Duration { return time.Duration(n) * time.Second }

// Faster is the same with all times but the probes' time-outs divided by n.
func (d Deployment) Faster(n int) Deployment {
	by := time.Duration(n)
	d.MinReady, d.Grace = d.MinReady/by, d.Grace/by
	for _, p := range []*Probe{&d.Readiness, &d.Liveness} {
		p.InitialDelay, p.Period = p.InitialDelay/by, p.Period/by
	}
	return d
}
