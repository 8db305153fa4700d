package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v4"
)

// TestSystemdUnit: its command line and settings are ours, it waits longer than
// we take to stop, and systemd understands every line, where it is installed.
func TestSystemdUnit(t *testing.T) {
	cleanPG(t)
	text, err := os.ReadFile("../../deploy/systemd/walstream.service")
	if err != nil {
		t.Fatal(err)
	}
	unit := map[string][]string{}
	for line := range strings.Lines(string(text)) {
		if key, value, ok := strings.Cut(strings.TrimSpace(strings.TrimPrefix(line, "#")), "="); ok {
			unit[key] = append(unit[key], value) // also what is to be uncommented
		}
	}
	command := strings.Fields(unit["ExecStart"][0])
	if want := []string{"/usr/local/bin/walstream", "--config", "/etc/walstream/walstream.yaml"}; strings.Join(command, " ") != strings.Join(want, " ") {
		t.Fatalf("starts %q, want %q", command, want)
	}
	_, example, _ := strings.Cut(string(text), "walstream.yaml    ")
	example, _, _ = strings.Cut(example, "#   /etc/walstream/postgres-password")
	var file strings.Builder
	for line := range strings.Lines(example) {
		file.WriteString(strings.TrimLeft(line, "# "))
	}
	dir := t.TempDir()
	env := []string{"WALSTREAM_KAFKA_SASL_MECHANISM=plain", "WALSTREAM_KAFKA_SASL_USER=walstream"}
	for _, variable := range unit["Environment"] {
		variable = strings.ReplaceAll(variable, "%d", dir)
		env = append(env, variable)
		_, path, _ := strings.Cut(variable, "=")
		writeSecret(t, path)
	}
	config := mustLoad(t, []string{"--config", writeFile(t, file.String())}, env)
	if config.PostgresPasswordFile == "" || config.KafkaSASLPasswordFile == "" {
		t.Error("the password files are not read")
	}
	stop, err := time.ParseDuration(unit["TimeoutStopSec"][0])
	if err != nil || stop < config.ShutdownGrace+5*time.Second {
		t.Errorf("TimeoutStopSec is %s (%v), shutdown-grace %s", stop, err, config.ShutdownGrace)
	}
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		t.Log("no systemd-analyze here: the unit's options are not verified")
		return
	}
	path := filepath.Join(dir, "walstream.service")
	runnable := strings.Replace(string(text), "="+command[0], "=/bin/true", 1) // ours is not installed here
	if err := os.WriteFile(path, []byte(runnable), 0o644); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("systemd-analyze", "verify", path).CombinedOutput(); err != nil || strings.Contains(string(out), path) {
		t.Errorf("systemd-analyze verify: %v\n%s", err, out)
	}
}

// TestSettingsInKubernetes: the plain manifests' settings are ours.
func TestSettingsInKubernetes(t *testing.T) {
	cleanPG(t)
	text, err := os.ReadFile("../../deploy/kubernetes/plain/configmap.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var configMap struct {
		Data map[string]string `yaml:"data"`
	}
	if err := yaml.Unmarshal(text, &configMap); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	settings := strings.ReplaceAll(configMap.Data["walstream.yaml"], "/etc/walstream/secret", dir)
	for _, name := range []string{"postgres-password", "http-token"} {
		writeSecret(t, filepath.Join(dir, name))
	}
	config := mustLoad(t, []string{"--config", writeFile(t, settings)}, nil)
	if config.Pipeline != "bank.bank_outbox_slot" || config.HTTPListen != "0.0.0.0:9475" {
		t.Errorf("pipeline %s listens on %s", config.Pipeline, config.HTTPListen)
	}
}

func writeSecret(t *testing.T, path string) {
	t.Helper()
	if err := os.WriteFile(path, []byte("a secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestSettingsInCompose: each instance's command and variables are settings of
// ours, and its container is given longer than the shutdown grace.
func TestSettingsInCompose(t *testing.T) {
	cleanPG(t)
	text, err := os.ReadFile("../../docker-compose.yml")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Services map[string]struct {
			Command     []string          `yaml:"command"`
			Environment map[string]string `yaml:"environment"`
			Grace       time.Duration     `yaml:"stop_grace_period"`
			Ports       []string          `yaml:"ports"`
		} `yaml:"services"`
	}
	if err := yaml.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	token := filepath.Join(t.TempDir(), "token")
	writeSecret(t, token)
	ports := map[string]bool{}
	for _, name := range []string{"walstream-1", "walstream-2"} {
		service := file.Services[name]
		env := []string{}
		for variable, value := range service.Environment {
			if variable == "WALSTREAM_HTTP_TOKEN_FILE" {
				value = token
			}
			env = append(env, variable+"="+value)
		}
		config := mustLoad(t, service.Command, env)
		if config.Slot != "bank_outbox_slot" || config.HTTPTokenFile != token || service.Grace < config.ShutdownGrace+5*time.Second {
			t.Errorf("%s: slot %q, token in %q, %s to stop", name, config.Slot, config.HTTPTokenFile, service.Grace)
		}
		for _, port := range service.Ports {
			if ports[port] || !strings.HasPrefix(port, "127.0.0.1:") {
				t.Errorf("%s: port %s is taken, or open to the network", name, port)
			}
			ports[port] = true
		}
	}
}
