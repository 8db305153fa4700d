package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
)

// machine describes what the figures hold for.
func machine() map[string]string {
	m := map[string]string{"os": runtime.GOOS + "/" + runtime.GOARCH, "cpus": fmt.Sprint(runtime.NumCPU())}
	first := func(path, prefix string) string {
		file, err := os.Open(path)
		if err != nil {
			return ""
		}
		defer func() { _ = file.Close() }()
		for lines := bufio.NewScanner(file); lines.Scan(); {
			if name, value, ok := strings.Cut(lines.Text(), ":"); ok && strings.TrimSpace(name) == prefix {
				return strings.TrimSpace(value)
			}
		}
		return ""
	}
	m["cpu"] = first("/proc/cpuinfo", "model name")
	m["memory"] = first("/proc/meminfo", "MemTotal")
	if text, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil {
		m["kernel"] = strings.TrimSpace(string(text))
	}
	return m
}

// versions of everything that took part.
func versions(ctx context.Context, w *world, all []contender) map[string]string {
	found := map[string]string{"go": runtime.Version()}
	for _, c := range all {
		found[c.name()] = c.version(ctx)
	}
	var server string
	if err := w.db.QueryRow(ctx, `SHOW server_version`).Scan(&server); err == nil {
		found["postgresql"] = server
	}
	if brokers, err := w.admin.ApiVersions(ctx); err == nil {
		for _, broker := range brokers {
			found["kafka"] = broker.VersionGuess()
		}
	}
	if out, err := exec.CommandContext(ctx, "java", "-version").CombinedOutput(); err == nil {
		found["java"], _, _ = strings.Cut(string(out), "\n")
	}
	return found
}
