package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// report is what a run found, and where: the raw results.
type report struct {
	When      time.Time         `json:"when"`
	Machine   map[string]string `json:"machine"`
	Versions  map[string]string `json:"versions"`
	NotRun    map[string]string `json:"not_run,omitempty"` // and why
	Drains    []*drained        `json:"drains,omitempty"`
	Latencies []latency         `json:"latencies,omitempty"`
	Idle      []idle            `json:"idle,omitempty"`
	Failed    []string          `json:"failed,omitempty"` // measurements beside drains that do not count
	Line      *line             `json:"line,omitempty"`
}

func newReport(ctx context.Context, w *world, f *field) *report {
	return &report{
		When: time.Now().UTC().Truncate(time.Second), Machine: machine(), NotRun: f.absent,
		Versions: versions(ctx, w, f.all),
	}
}

// err names the measurements that do not count.
func (r *report) err() error {
	failed := slices.Clone(r.Failed)
	for _, d := range r.Drains {
		failed = append(failed, d.Failed...)
	}
	if len(failed) == 0 {
		return nil
	}
	return errors.New("does not count: " + strings.Join(failed, "; "))
}

// write keeps the raw results, what they say as a page, and its pictures.
func (r *report) write(dir, name string) (path string, err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	raw, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return "", err
	}
	name += "-" + r.When.Format("20060102-150405")
	files := r.pictures(name)
	files[name+".json"] = string(raw) + "\n"
	files[name+".md"] = r.page()
	for file, text := range files {
		if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o644); err != nil {
			return "", err
		}
	}
	return filepath.Join(dir, name+".json"), nil
}

// readReport reads raw results back.
func readReport(path string) (*report, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	r := &report{}
	if err := json.Unmarshal(text, r); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return r, nil
}
