package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/jackc/pglogrepl"
	"github.com/rs/zerolog"
	"golang.org/x/term"

	"github.com/walstream/walstream/pkg/pipeline"
)

const commandStatus = "status"

// commandName is the application_name of commands: an instance's is the pipeline's,
// and is counted as one.
const commandName = "walstream-command"

// statusTimeout bounds one reading: a server that does not answer is an answer too.
const statusTimeout = 10 * time.Second

// Status has the flags that only walstream status knows.
type Status struct {
	JSON  bool          `name:"json" help:"one line of JSON; what is unknown is null"`
	Watch bool          `name:"watch" help:"again and again, until Ctrl-C"`
	Every time.Duration `name:"every" default:"2s" range:"200ms..1h" help:"watch: how often"`
}

func (*Status) validate(r *report) { r.checkOwn(commandStatus) }

// runStatus reads how the pipeline stands from PostgreSQL and Kafka themselves.
func runStatus(ctx context.Context, c *Config, f *Status, s streams) error {
	cfg, err := c.pipelineConfig(zerolog.Nop())
	if err != nil {
		return err
	}
	cfg.Postgres.ApplicationName = commandName
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM, os.Interrupt)
	defer stop()
	file, isFile := s.out.(*os.File)
	terminal := isFile && term.IsTerminal(int(file.Fd()))
	var seen lagSamples
	for {
		view := readView(ctx, cfg, &seen)
		if f.Watch && ctx.Err() != nil {
			return nil
		}
		if err := f.show(s.out, c, view, terminal); err != nil {
			return err
		}
		if !f.Watch {
			return view.verdict()
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(f.Every):
		}
	}
}

func (f *Status) show(out io.Writer, c *Config, view *statusView, terminal bool) error {
	var b strings.Builder
	switch {
	case f.JSON:
		if err := json.NewEncoder(&b).Encode(view); err != nil {
			return err
		}
	default:
		view.table(&b)
	}
	text := c.Redact(b.String())
	switch {
	case f.JSON:
	case f.Watch && terminal: // home, each line to its end, and what was below
		text = "\x1b[H" + strings.ReplaceAll(text, "\n", "\x1b[K\n") + "\x1b[J"
	case f.Watch:
		text += "\n"
	}
	_, err := io.WriteString(out, text)
	return err
}

func readView(ctx context.Context, cfg pipeline.Config, seen *lagSamples) *statusView {
	ctx, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	return newStatusView(cfg, pipeline.ReadStanding(ctx, cfg), seen)
}

// verdict is the exit code of a status: 0 when an instance of this pipeline holds
// the slot and nothing speaks against it.
func (v *statusView) verdict() error {
	switch {
	case v.unread != nil:
		return v.unread
	case len(v.problems) > 0:
		return classified(v.problems[0])
	case v.hanging != nil:
		return classified(v.hanging)
	case len(v.findings) > 0:
		f := v.findings[0]
		return withCode(exitCode(verdict(v.findings)), fmt.Errorf("%s: %s", f.Name, f.Detail))
	case v.State != pipeline.Active:
		return withCode(exitNotStreaming, fmt.Errorf("no instance of pipeline %s streams: %s", v.Pipeline, v.State))
	}
	return nil
}

// table is the status for people.
func (v *statusView) table(out io.Writer) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	line := func(name, format string, args ...any) { fmt.Fprintf(w, "%s\t%s\n", name, fmt.Sprintf(format, args...)) }
	line("pipeline", "%s, at %s", v.Pipeline, v.At.UTC().Format(time.RFC3339))
	line("state", "%s", v.state())
	line("instances", "%s", v.instances())
	line("pause", "%s", v.pause())
	line("server", "%s", v.server())
	line("slot", "%s", v.slot())
	line("WAL kept", "%s", v.kept())
	if r := v.Rewind; r != nil {
		line("rewind", "%s, from %s, keeps %s (wal_status %s)", r.Slot, r.From, bytesText(r.RetainedBytes), orUnknown(r.WALStatus))
	}
	line("checkpoint", "%s", v.checkpoint())
	line("lag", "%s", v.lag())
	for _, problem := range v.Problems {
		line("problem", "%s", strings.ReplaceAll(problem, "\n", " "))
	}
	_ = w.Flush() // out is a builder
}

const unknown = "unknown"

func (v *statusView) state() string {
	if v.Holder == nil {
		return string(v.State)
	}
	return fmt.Sprintf("%s: %s", v.State, v.Holder.text)
}

func (v *statusView) instances() string {
	if v.Instances == nil {
		return unknown
	}
	var at []string
	for _, i := range *v.Instances {
		at = append(at, fmt.Sprintf("PID %d%s", i.PID, at_(i.Address)))
	}
	if len(at) == 0 {
		return "none seen"
	}
	text := fmt.Sprintf("%d: %s", len(at), strings.Join(at, ", "))
	if v.State == pipeline.Active && len(at) > 1 {
		text += fmt.Sprintf("; %d standing by", len(at)-1)
	}
	return text
}

func at_(address string) string {
	if address == "" {
		return ""
	}
	return " at " + address
}

func (v *statusView) pause() string {
	switch {
	case v.kafkaUnread:
		return unknown
	case v.Pause == nil:
		return "none"
	case v.State == pipeline.Active:
		return v.Pause.text + " (it takes hold within seconds)"
	}
	return v.Pause.text
}

func (v *statusView) server() string {
	if v.Server == nil {
		return unknown
	}
	text := fmt.Sprintf("PostgreSQL %d, system %s, timeline %d, WAL up to %s", v.Server.Version, v.Server.SystemID, v.Server.Timeline, orUnknown(v.Server.WALEnd))
	if v.Server.InRecovery {
		text += ", in recovery"
	}
	return text
}

func (v *statusView) slot() string {
	switch {
	case v.Slot == nil:
		return unknown
	case !v.Slot.Exists:
		return v.SlotName + " does not exist"
	}
	text := fmt.Sprintf("%s, confirmed %s, restart %s", v.SlotName, orUnknown(v.Slot.Confirmed), orUnknown(v.Slot.Restart))
	switch {
	case v.Slot.Synced && v.Server != nil && v.Server.InRecovery:
		text += ", a copy of the primary's"
	case v.Slot.Failover:
		text += ", failover slot"
	}
	if v.Slot.InactiveSince != nil && v.Holder == nil {
		text += ", inactive since " + v.Slot.InactiveSince.UTC().Format(time.RFC3339)
	}
	return text
}

func (v *statusView) kept() string {
	if v.Slot == nil || !v.Slot.Exists {
		return unknown
	}
	if v.Slot.WALStatus == "lost" { // there is no distance to a limit, and no position to measure from
		return "none, wal_status lost"
	}
	text := bytesText(v.Slot.RetainedBytes) + ", wal_status " + orUnknown(v.Slot.WALStatus)
	if v.Slot.SafeWALBytes != nil {
		return text + ", " + bytesText(v.Slot.SafeWALBytes) + " until the slot may be lost"
	}
	return text + ", no limit"
}

func (v *statusView) checkpoint() string {
	switch {
	case v.kafkaUnread:
		return unknown
	case v.Checkpoint == nil:
		return "none"
	}
	text := fmt.Sprintf("%s, phase %s, %s", v.Checkpoint.Covered, v.Checkpoint.Phase, v.Checkpoint.Delivery)
	if v.Checkpoint.CommitTime != nil {
		text += ", newest transaction of " + v.Checkpoint.CommitTime.UTC().Format(time.RFC3339)
	}
	return text
}

func (v *statusView) lag() string {
	if v.LagBytes == nil {
		return unknown
	}
	text := bytesText(v.LagBytes)
	switch {
	case v.LagSeconds == nil:
		return text + ", seconds unknown"
	case *v.LagSeconds == 0:
		return text + ", 0 s"
	}
	return fmt.Sprintf("%s, at most %s", text, formatSeconds(*v.LagSeconds))
}

func formatSeconds(seconds float64) string {
	d := time.Duration(seconds * float64(time.Second))
	if d < 10*time.Second {
		return d.Round(100 * time.Millisecond).String()
	}
	return formatDuration(d.Round(time.Second))
}

func bytesText(n *int64) string {
	if n == nil {
		return unknown
	}
	return humanize.IBytes(uint64(max(*n, 0)))
}

func orUnknown(text string) string {
	if text == "" {
		return unknown
	}
	return text
}

var errUnread = errors.New("could not be read")

// lagSamples are ends of the WAL as they were read before: what the checkpoint has
// come to since bounds its age, also where no row tells.
type lagSamples []lagSample

type lagSample struct {
	at  time.Time
	end pglogrepl.LSN
}

const maxSamples = 1000

// bound is the age of the oldest row that may not be published, at most.
func (s *lagSamples) bound(now time.Time, end, covered pglogrepl.LSN, newest time.Time) *float64 {
	defer func() { *s = append((*s)[max(0, len(*s)-maxSamples):], lagSample{now, end}) }()
	at := newest // rows come in commit order, so later ones are younger
	for _, sample := range *s {
		if sample.end <= covered && sample.at.After(at) {
			at = sample.at
		}
	}
	var seconds float64
	switch {
	case covered >= end:
	case at.IsZero():
		return nil
	default:
		seconds = max(0, now.Sub(at).Seconds())
	}
	return &seconds
}
