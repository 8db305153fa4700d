package check

import (
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	policy "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/yaml"

	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var update = flag.Bool("update", false, "write deploy/kubernetes/plain anew")

const plainDir = "../plain"

// plainFiles are the chart's defaults; what needs an operator of its own stands
// aside, so that kubectl apply -f of the directory works without.
func plainFiles(t *testing.T) map[string]string {
	t.Helper()
	files := map[string]string{}
	for name, m := range mustRender(t, "") {
		files[name] = m.text
	}
	files["prometheus-operator/podmonitor.yaml"] = mustRender(t, "podMonitor: {enabled: true}")["podmonitor.yaml"].text
	return files
}

func mustRender(t *testing.T, values string) map[string]manifest {
	t.Helper()
	manifests, err := render("walstream", "walstream", values)
	if err != nil {
		t.Fatal(err)
	}
	return manifests
}

// One source: the plain manifests are what the chart makes.
func TestPlainManifestsAreTheChartsDefaults(t *testing.T) {
	want := plainFiles(t)
	if *update {
		for name, text := range want {
			if err := os.WriteFile(filepath.Join(plainDir, name), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	var got []string
	for _, pattern := range []string{"*.yaml", "*/*.yaml"} {
		names, err := filepath.Glob(filepath.Join(plainDir, pattern))
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, names...)
	}
	for _, path := range got {
		name, _ := filepath.Rel(plainDir, path)
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if string(text) != want[name] {
			t.Errorf("%s is not what the chart renders: go test -update .", name)
		}
		if _, err := decode(string(text)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if len(got) != len(want) {
		t.Errorf("%d plain manifests, the chart makes %d: go test -update .", len(got), len(want))
	}
}

// Values files that people may write; each comes out as manifests that hang
// together.
func TestChartWithOtherValues(t *testing.T) {
	paths, err := filepath.Glob("values/*.yaml")
	if err != nil || len(paths) < 3 {
		t.Fatalf("%d values files, %v", len(paths), err)
	}
	for _, path := range paths {
		values, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		t.Run(filepath.Base(path), func(t *testing.T) {
			manifests, err := render("orders", "shop", string(values))
			if err != nil {
				t.Fatal(err)
			}
			hangTogether(t, manifests)
		})
	}
	t.Run("default", func(t *testing.T) { hangTogether(t, mustRender(t, "")) })
}

// hangTogether: what one manifest says of another is true.
func hangTogether(t *testing.T, manifests map[string]manifest) {
	t.Helper()
	d := manifests["deployment.yaml"].object.(*apps.Deployment)
	pod := d.Spec.Template.Spec
	container := pod.Containers[0]
	selectors := map[string]*meta.LabelSelector{
		"deployment": d.Spec.Selector,
		"budget":     manifests["poddisruptionbudget.yaml"].object.(*policy.PodDisruptionBudget).Spec.Selector,
	}
	if m, ok := manifests["networkpolicy.yaml"]; ok {
		selectors["network policy"] = &m.object.(*networking.NetworkPolicy).Spec.PodSelector
	}
	if m, ok := manifests["podmonitor.yaml"]; ok {
		monitor := m.object.(*monitoring.PodMonitor)
		selectors["pod monitor"] = &monitor.Spec.Selector
		if port := monitor.Spec.PodMetricsEndpoints[0].Port; port == nil || *port != container.Ports[0].Name {
			t.Error("the pod monitor asks another port")
		}
	}
	for _, spread := range pod.TopologySpreadConstraints {
		selectors["spread over "+spread.TopologyKey] = spread.LabelSelector
	}
	for name, selector := range selectors {
		s, err := meta.LabelSelectorAsSelector(selector)
		if err != nil || s.Empty() || !s.Matches(labels.Set(d.Spec.Template.Labels)) {
			t.Errorf("%s: the selector does not fit the pods: %v", name, err)
		}
	}
	config := manifests["configmap.yaml"].object.(*core.ConfigMap)
	mounted := map[string]core.Volume{}
	for _, v := range pod.Volumes {
		mounted[v.Name] = v
	}
	for _, m := range container.VolumeMounts {
		v, ok := mounted[m.Name]
		if !ok {
			t.Errorf("no volume for %s", m.MountPath)
		}
		if v.ConfigMap != nil {
			if _, ok := config.Data[m.SubPath]; !ok || v.ConfigMap.Name != config.Name || !slices.Contains(container.Args, m.MountPath) {
				t.Errorf("the settings at %s are not those of the config map, or not read", m.MountPath)
			}
		}
	}
	var settings map[string]any
	if err := yaml.UnmarshalStrict([]byte(config.Data["walstream.yaml"]), &settings); err != nil {
		t.Errorf("the settings are no YAML: %v", err)
	}
	for name, value := range settings {
		file, ok := value.(string)
		if ok && strings.HasPrefix(file, "/") && !slices.ContainsFunc(container.VolumeMounts, func(m core.VolumeMount) bool { return strings.HasPrefix(file, m.MountPath+"/") }) {
			t.Errorf("%s names %s, where nothing is mounted", name, file)
		}
	}
	if m, ok := manifests["podmonitor.yaml"]; ok {
		token := m.object.(*monitoring.PodMonitor).Spec.PodMetricsEndpoints[0].Authorization.Credentials
		if token.Name != mounted["secret"].Secret.SecretName || "/etc/walstream/secret/"+token.Key != settings["http-token-file"] {
			t.Errorf("the pod monitor's token is %s of %s", token.Key, token.Name)
		}
	}
	if settings["slot"] == nil || settings["shutdown-grace"] == nil {
		t.Errorf("settings %v", settings)
	}
}

// What a cluster's policy (restricted, of the pod security standards) demands.
func TestPodsAreRestricted(t *testing.T) {
	pod := mustRender(t, "")["deployment.yaml"].object.(*apps.Deployment).Spec.Template.Spec
	s, c := pod.SecurityContext, pod.Containers[0].SecurityContext
	if !*s.RunAsNonRoot || *s.RunAsUser == 0 || s.SeccompProfile.Type != core.SeccompProfileTypeRuntimeDefault {
		t.Error("the pod may run as root, or without seccomp")
	}
	if *c.AllowPrivilegeEscalation || !*c.ReadOnlyRootFilesystem || !slices.Equal(c.Capabilities.Drop, []core.Capability{"ALL"}) || c.Capabilities.Add != nil {
		t.Error("the container has rights that it does not need")
	}
	if *pod.EnableServiceLinks {
		t.Error("a service named walstream sets WALSTREAM_ variables, which walstream refuses")
	}
	if *pod.AutomountServiceAccountToken {
		t.Error("the pod can talk to the cluster's API")
	}
	for _, v := range pod.Volumes {
		if v.Secret != nil && *v.Secret.DefaultMode&0o007 != 0 {
			t.Errorf("secret %s can be read by everybody", v.Name)
		}
	}
}

// Values that cannot work are refused when they are rendered, not on the cluster.
func TestChartRefuses(t *testing.T) {
	for _, c := range []struct{ values, want string }{
		{"config: {slot: null}", "slot"},
		{"replica: 3", "replica"},
		{"config: {http-listen: '127.0.0.1:9475'}", "config.http-listen"},
		{"config: {http-listen: null}", "config.http-listen"},
		{"config: {shutdown-grace: 5s}", "set shutdownGraceSeconds"},
		{"config: {kafka-brokers: 'a:9092,b:9093'}", "egressPorts lacks 9093"},
		{"replicas: 0", "replicas"},
	} {
		if _, err := render("walstream", "walstream", c.values); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", c.values, err)
		}
	}
	// And the decoder is strict: a field of no type is found.
	text := mustRender(t, "")["deployment.yaml"].text
	if _, err := decode(strings.Replace(text, "readinessProbe:", "readynessProbe:", 1)); err == nil {
		t.Error("a field that the API does not have passes")
	}
}
