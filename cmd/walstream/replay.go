package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/rs/zerolog"
	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"

	"github.com/walstream/walstream/pkg/checkpoint"
	"github.com/walstream/walstream/pkg/history"
	"github.com/walstream/walstream/pkg/pipeline"
	"github.com/walstream/walstream/pkg/replay"
)

const commandReplay = "replay"

// Replay has the flags that only walstream replay knows. Both bounds belong to a
// range.
type Replay struct {
	FromLSN     string `name:"from-lsn" placeholder:"LSN" help:"commits from this LSN on"`
	ToLSN       string `name:"to-lsn" placeholder:"LSN" help:"commits up to this LSN"`
	FromTime    string `name:"from-time" placeholder:"TIME" help:"rows from this time on: 2026-11-30T15:04:05Z, or 2h for two hours ago"`
	ToTime      string `name:"to-time" placeholder:"TIME" help:"rows up to this time"`
	FromID      string `name:"from-id" placeholder:"ID" help:"rows from this id on (the table's id column)"`
	ToID        string `name:"to-id" placeholder:"ID" help:"rows up to this id"`
	TimeColumn  string `name:"time-column" placeholder:"COLUMN" help:"when a row was made; empty: timestamp-column, else created_at"`
	OnlyKey     string `name:"only-key" placeholder:"KEY" help:"records of this key only"`
	OnlyTopic   string `name:"only-topic" placeholder:"TOPIC" help:"records of this topic only"`
	TopicPrefix string `name:"to-topic-prefix" placeholder:"TEXT" help:"send to other topics: this, and the topic's name"`
	Source      string `name:"source" default:"auto" values:"auto,table,wal" help:"where rows are read: auto, table or wal"`
	Rate        int    `name:"rate" default:"0" range:"0..10000000" help:"rows a second at most; 0: as fast as it goes"`
	DryRun      bool   `name:"dry-run" help:"read and count, and send nothing"`
	Restart     bool   `name:"restart" help:"begin anew, whatever an earlier replay has left"`
	Yes         bool   `name:"yes" help:"do not ask"`
	JSON        bool   `name:"json" help:"one line of JSON"`

	request replay.Request
}

// requestFlags make a request what it is; the others may change when it goes on.
var requestFlags = []string{
	"from-lsn", "to-lsn", "from-time", "to-time", "from-id", "to-id", "time-column", "only-key", "only-topic", "to-topic-prefix", "source",
}

func (p *Replay) validate(r *report) {
	r.checkOwn(commandReplay)
	var text []string
	for _, name := range requestFlags {
		if r.set(name) {
			text = append(text, "--"+name+"="+r.texts[name])
		}
	}
	p.request = replay.Request{
		Text: strings.Join(text, " "), FromID: p.FromID, ToID: p.ToID, TimeColumn: p.TimeColumn,
		Topic: p.OnlyTopic, TopicPrefix: p.TopicPrefix, Source: replay.Source(p.Source),
	}
	for _, l := range []struct {
		name, text string
		at         **pglogrepl.LSN
	}{{"from-lsn", p.FromLSN, &p.request.FromLSN}, {"to-lsn", p.ToLSN, &p.request.ToLSN}} {
		if !r.set(l.name) {
			continue
		}
		lsn, err := history.ParseLSN(l.text)
		if err != nil {
			r.refuse(l.name, "is not an LSN such as 16/B374D848")
		}
		*l.at = &lsn
	}
	if r.set("only-key") {
		p.request.Key = &p.OnlyKey
	}
	now := time.Now()
	for _, t := range []struct {
		name, text string
		at         *time.Time
	}{{"from-time", p.FromTime, &p.request.FromTime}, {"to-time", p.ToTime, &p.request.ToTime}} {
		var err error
		if *t.at, err = parseMoment(t.text, now); err != nil {
			r.refuse(t.name, err.Error())
		}
	}
	for _, name := range []string{"only-topic", "to-topic-prefix"} {
		if r.set(name) && !validTopic(r.texts[name]) {
			r.refuse(name, "is no topic name; Kafka allows 1 to 249 of letters, digits and ._-")
		}
	}
	if len(r.faults) > 0 {
		return
	}
	if fault, ok := errors.AsType[*replay.SettingError](p.request.Check()); ok {
		r.add("--"+fault.Setting, "", fault.Problem)
	}
}

// replayed is what the command prints as JSON.
type replayed struct {
	checkpoint.Replay
	Resumed bool     `json:"resumed"`
	DryRun  bool     `json:"dry_run"`
	Notes   []string `json:"notes,omitempty"`
	Seconds float64  `json:"seconds"`
}

// runReplay says what would be done, asks, and does it.
func runReplay(ctx context.Context, c *Config, own *Replay, s streams) error {
	log := newLogger(c, s.err).Level(zerolog.WarnLevel)
	ctx, stop := onSignal(ctx, log)
	defer stop()
	cfg, err := c.pipelineConfig(log)
	if err != nil {
		return err
	}
	cfg.Postgres.ApplicationName = "walstream replay"
	plan, err := replay.Open(ctx, replay.Config{Pipeline: cfg, Request: own.request, Rate: own.Rate, Restart: own.Restart, DryRun: own.DryRun})
	if err != nil {
		return replayError(err)
	}
	result := replayed{Replay: plan.Note, Resumed: plan.Resumes, DryRun: own.DryRun, Notes: plan.Notes}
	if plan.Note.Done {
		result.Notes = append(result.Notes, "this replay is complete since before; --restart does it again")
		return printReplayed(s.out, c, &result, own.JSON)
	}
	question := replayQuestion(plan, own)
	if own.Yes || own.DryRun {
		fmt.Fprintln(s.err, c.Redact(question))
	} else if err := confirm(s, c.Redact(question)); err != nil {
		return err
	}
	began := time.Now()
	told, ended := showReplay(s.err, plan)
	result.Replay, err = plan.Run(ctx, told)
	ended()
	result.Seconds = time.Since(began).Seconds()
	failed := printReplayed(s.out, c, &result, own.JSON)
	if err == nil && !result.Done {
		err = withCode(exitUnacknowledged, errors.New("interrupted: the same command goes on where it stopped"))
	}
	return errors.Join(replayError(err), failed)
}

func replayQuestion(p *replay.Plan, own *Replay) string {
	var b strings.Builder
	fmt.Fprintf(&b, "source: %s\n%s\n", p.Note.Source, p.Note.Covers)
	for _, note := range p.Notes {
		b.WriteString(note + "\n")
	}
	if p.Resumes {
		fmt.Fprintf(&b, "replay %s goes on: %d rows are published\n", p.Note.ID, p.Note.Rows)
	}
	if p.Rows >= 0 {
		fmt.Fprintf(&b, "%d rows are in the range\n", p.Rows)
	}
	if own.OnlyKey != "" || own.OnlyTopic != "" {
		b.WriteString("of them only those of the key or topic that was asked for are sent\n")
	}
	where := "to the topics they went to, behind what was published since, also of the same key"
	if own.TopicPrefix != "" {
		where = "to topics " + own.TopicPrefix + "*"
	}
	fmt.Fprintf(&b, "They are published again %s; header walstream-replay marks them.", where)
	return b.String()
}

// showReplay shows a bar on a terminal, and a line every few seconds elsewhere.
func showReplay(out io.Writer, p *replay.Plan) (told func(checkpoint.Replay), ended func()) {
	file, ok := out.(*os.File)
	if !ok || !term.IsTerminal(int(file.Fd())) {
		say := everyFewSeconds(func(text string) { fmt.Fprintln(out, "walstream: "+text) })
		return func(at checkpoint.Replay) {
			if p.Rows > 0 {
				say(fmt.Sprintf("%d of %d rows published", at.Rows, p.Rows))
				return
			}
			say(fmt.Sprintf("%d rows published", at.Rows))
		}, func() {}
	}
	bar := progressbar.NewOptions64(cmp.Or(p.Rows, -1), progressbar.OptionSetWriter(out), progressbar.OptionSetDescription("replay"),
		progressbar.OptionShowCount(), progressbar.OptionShowIts(), progressbar.OptionSetItsString("rows"),
		progressbar.OptionThrottle(200*time.Millisecond), progressbar.OptionSetPredictTime(true))
	return func(at checkpoint.Replay) { _ = bar.Set64(int64(at.Rows)) }, func() { _ = bar.Exit(); fmt.Fprintln(out) }
}

func printReplayed(out io.Writer, c *Config, r *replayed, asJSON bool) error {
	if asJSON {
		return json.NewEncoder(out).Encode(r)
	}
	var b strings.Builder
	verb := "published again"
	switch {
	case r.DryRun:
		verb = "would be published again"
	case !r.Done:
		verb = "published again so far"
	}
	fmt.Fprintf(&b, "replay %s: %d rows %s, from the %s\n", r.ID, r.Rows, verb, r.Source)
	for _, topic := range slices.Sorted(maps.Keys(r.Topics)) {
		fmt.Fprintf(&b, "  topic %s: %d\n", cmp.Or(topic, "(others)"), r.Topics[topic])
	}
	fmt.Fprintf(&b, "  covered: %s\n", r.Covers)
	if r.Least != nil {
		fmt.Fprintf(&b, "  ids: %d to %d\n", *r.Least, *r.Greatest)
	}
	if r.FirstCommit != "" {
		fmt.Fprintf(&b, "  commit LSNs: %s to %s\n", r.FirstCommit, r.LastCommit)
	}
	if r.Bad > 0 {
		fmt.Fprintf(&b, "  %d rows could become no record: --on-poison decided\n", r.Bad)
	}
	for _, note := range r.Notes {
		b.WriteString("  " + note + "\n")
	}
	_, err := io.WriteString(out, c.Redact(b.String()))
	return err
}

// replayError gives what went wrong the exit code of its kind.
func replayError(err error) error {
	if err == nil {
		return nil
	}
	if coded, ok := errors.AsType[*codedError](err); ok {
		return coded
	}
	_, setting := errors.AsType[*replay.SettingError](err)
	_, setup := errors.AsType[*replay.SetupError](err)
	switch {
	case setting:
		return withCode(exitConfig, err)
	case setup, errors.Is(err, context.Canceled), pipeline.Classify(err).Action == pipeline.Retry:
		return withCode(exitPreflight, err)
	}
	return classified(err)
}
