package check

import (
	"bytes"
	"fmt"
	"path"
	"strings"

	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	policy "k8s.io/api/policy/v1"
	"sigs.k8s.io/yaml"
)

// chartDir as seen from this directory.
const chartDir = "../chart"

// manifest is a rendered file and what it says.
type manifest struct {
	text   string
	object any
}

// render is helm template: values are YAML, and manifests are by their files'
// names. Helm's own check of the values by values.schema.json is part of it.
func render(release, namespace, values string) (map[string]manifest, error) {
	chart, err := loader.LoadDir(chartDir)
	if err != nil {
		return nil, err
	}
	given, err := chartutil.ReadValues([]byte(values))
	if err != nil {
		return nil, err
	}
	options := chartutil.ReleaseOptions{Name: release, Namespace: namespace, IsInstall: true}
	all, err := chartutil.ToRenderValues(chart, given, options, chartutil.DefaultCapabilities)
	if err != nil {
		return nil, err
	}
	files, err := engine.Render(chart, all)
	if err != nil {
		return nil, err
	}
	manifests := map[string]manifest{}
	for file, text := range files {
		name := path.Base(file)
		if text = strings.TrimSpace(text) + "\n"; text == "\n" || name == "NOTES.txt" || strings.HasPrefix(name, "_") {
			continue
		}
		object, err := decode(text)
		if err != nil {
			return nil, fmt.Errorf("%s: %w\n%s", name, err, text)
		}
		manifests[name] = manifest{text, object}
	}
	return manifests, nil
}

// decode one manifest into the type that it says it is.
func decode(text string) (any, error) {
	var kind struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
	}
	if err := yaml.Unmarshal([]byte(text), &kind); err != nil {
		return nil, err
	}
	object, ok := map[string]any{
		"v1/ConfigMap":                        &core.ConfigMap{},
		"apps/v1/Deployment":                  &apps.Deployment{},
		"policy/v1/PodDisruptionBudget":       &policy.PodDisruptionBudget{},
		"networking.k8s.io/v1/NetworkPolicy":  &networking.NetworkPolicy{},
		"monitoring.coreos.com/v1/PodMonitor": &monitoring.PodMonitor{},
	}[kind.APIVersion+"/"+kind.Kind]
	if !ok {
		return nil, fmt.Errorf("no type for %s of %s", kind.Kind, kind.APIVersion)
	}
	if bytes.Contains([]byte(text), []byte("\n---")) {
		return nil, fmt.Errorf("more than one manifest in a file")
	}
	return object, yaml.UnmarshalStrict([]byte(text), object)
}
