package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/rs/zerolog"

	"github.com/walstream/walstream/pkg/checkpoint"
	"github.com/walstream/walstream/pkg/pipeline"
	"github.com/walstream/walstream/pkg/replication"
	"github.com/walstream/walstream/pkg/sink"
)

const commandCheck = "check"

// Check has the flags that only walstream check knows.
type Check struct {
	JSON bool `name:"json" help:"one line of JSON"`
}

// checkTimeout bounds the whole check: a server that does not answer is a
// finding too.
const checkTimeout = 30 * time.Second

// check reports everything that is needed and how it stands, each missing thing
// with the fix. It changes nothing.
func check(ctx context.Context, c *Config, k *Check, s streams) error {
	cfg, err := c.pipelineConfig(zerolog.Nop())
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	findings := append(pipeline.Check(ctx, cfg), c.checkRetention(ctx)...)
	end := verdict(findings)
	print := printFindings
	if k.JSON {
		print = printFindingsJSON
	}
	if err := print(s.out, c, findings); err != nil {
		return err
	}
	return end
}

// checkView is the answer of walstream check --json.
type checkView struct {
	OK       bool          `json:"ok"` // nothing failed
	ExitCode int           `json:"exit_code"`
	Findings []findingView `json:"findings"`
}

type findingView struct {
	Name   string             `json:"name"`
	Status replication.Status `json:"status"`
	Detail string             `json:"detail"`
	Remedy string             `json:"remedy,omitempty"`
}

func printFindingsJSON(out io.Writer, c *Config, findings []replication.Finding) error {
	end := verdict(findings)
	view := checkView{OK: end == nil, ExitCode: exitCode(end), Findings: []findingView{}}
	for _, f := range findings {
		shown := findingView{Name: f.Name, Status: f.Status, Detail: c.Redact(f.Detail)}
		if f.Status != replication.StatusOK {
			shown.Remedy = c.Redact(f.Remedy)
		}
		view.Findings = append(view.Findings, shown)
	}
	return json.NewEncoder(out).Encode(view)
}

func printFindings(out io.Writer, c *Config, findings []replication.Finding) error {
	var b strings.Builder
	for _, f := range findings {
		fmt.Fprintf(&b, "%-4s  %s: %s\n", f.Status, f.Name, indent(f.Detail))
		if f.Remedy != "" && f.Status != replication.StatusOK {
			fmt.Fprintf(&b, "      -> %s\n", indent(f.Remedy))
		}
	}
	_, err := io.WriteString(out, c.Redact(b.String()))
	return err
}

func indent(text string) string { return strings.ReplaceAll(text, "\n", "\n         ") }

// verdict is the exit code of what was found: missing rights have their own when
// nothing else is missing.
func verdict(findings []replication.Finding) error {
	failures, rights := 0, 0
	for _, f := range findings {
		if f.Status != replication.StatusFail {
			continue
		}
		if _, refused := errors.AsType[*checkpoint.Refusal](f.Err); refused {
			return classified(f.Err)
		}
		failures++
		_, kafka := errors.AsType[*sink.AccessError](f.Err)
		if kafka || errors.Is(f.Err, replication.ErrMissingRight) || errors.Is(f.Err, replication.ErrAuthentication) {
			rights++
		}
	}
	switch {
	case failures == 0:
		return nil
	case failures == rights:
		return withCode(exitRights, errors.New("a login is refused, or a right is missing"))
	}
	return withCode(exitPreflight, fmt.Errorf("%d of %d checks failed", failures, len(findings)))
}
