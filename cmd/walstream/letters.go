package main

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"
	"unicode/utf8"

	"github.com/dustin/go-humanize"
	"github.com/rs/zerolog"

	"github.com/walstream/walstream/pkg/sink"
)

const commandLetters = "dead-letters"

// What walstream dead-letters does.
const (
	lettersList  = "list"
	lettersShow  = "show"
	lettersRetry = "retry"
)

// Letters has the flags that only walstream dead-letters knows.
type Letters struct {
	Action  string   `arg:"" optional:"" name:"action" words:"list,show,retry" help:"list, show or retry"`
	ID      []string `name:"id" placeholder:"ID,..." help:"letters to show or retry, by the first column of the list"`
	All     bool     `name:"all" help:"retry all that were not published yet"`
	ToTopic string   `name:"to-topic" placeholder:"NAME" help:"retry: to this topic instead of their own"`
	Again   bool     `name:"again" help:"retry: also those that were published before"`
	Raw     bool     `name:"raw" help:"show: the payload alone, byte for byte"`
	JSON    bool     `name:"json" help:"list: one line of JSON for each"`
}

func (l *Letters) validate(r *report) {
	switch l.Action {
	case lettersList:
	case lettersShow:
		if len(l.ID) != 1 {
			r.refuse("id", "is required, one of the list")
		}
	case lettersRetry:
		if (len(l.ID) > 0) == l.All {
			r.refuse("id", "or --all is required, and not both")
		}
		if l.ToTopic != "" && !validTopic(l.ToTopic) {
			r.refuse("to-topic", "names no topic; Kafka allows 1 to 249 of letters, digits and ._-")
		}
	default:
		r.add(commandLetters, "command line", "is followed by list, show or retry")
	}
}

// runLetters reads or publishes dead letters; the pipeline may run meanwhile.
func runLetters(ctx context.Context, c *Config, l *Letters, s streams) error {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM, os.Interrupt)
	defer stop()
	cfg, err := c.kafkaConfig(newLogger(c, s.err).Level(zerolog.WarnLevel))
	if err != nil {
		return err
	}
	kafka, err := sink.Open(cfg)
	if err != nil {
		return withCode(exitConfig, err)
	}
	defer kafka.Close()
	switch l.Action {
	case lettersList:
		err = l.list(ctx, kafka, s.out)
	case lettersShow:
		err = l.show(ctx, kafka, s.out)
	case lettersRetry:
		err = l.retry(ctx, kafka, s)
	}
	if err != nil && sink.Retriable(err) {
		return withCode(exitPreflight, err)
	}
	if _, access := errors.AsType[*sink.AccessError](err); access {
		return withCode(exitRights, err)
	}
	return err
}

// letterLine is a letter in the list, as JSON.
type letterLine struct {
	ID        string     `json:"id"`
	At        time.Time  `json:"at"`
	Position  string     `json:"position"`
	EventID   string     `json:"event_id,omitempty"`
	Topic     string     `json:"topic"`
	Table     string     `json:"table,omitempty"`
	Class     sink.Class `json:"class"`
	Reason    string     `json:"reason"`
	Size      int        `json:"size"`
	Truncated string     `json:"truncated,omitempty"`
	Retried   time.Time  `json:"retried,omitzero"`
	RetriedTo string     `json:"retried_to,omitempty"`
}

func (l *Letters) list(ctx context.Context, kafka *sink.Kafka, out io.Writer) error {
	letters, _, err := kafka.Letters(ctx)
	if err != nil {
		return err
	}
	if l.JSON {
		encoder := json.NewEncoder(out)
		for _, d := range letters {
			if err := encoder.Encode(letterLine{
				ID: d.ID, At: d.At, Position: d.Position.String(), EventID: d.EventID, Topic: d.Topic, Table: d.Table, Class: d.Class,
				Reason: d.Reason, Size: d.Size, Truncated: d.Truncated, Retried: d.Retried, RetriedTo: d.RetriedTo,
			}); err != nil {
				return err
			}
		}
		return nil
	}
	if len(letters) == 0 {
		_, err := fmt.Fprintln(out, "no dead letters")
		return err
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "ID\tTIME\tPOSITION\tTOPIC\tSIZE\tCLASS\tSTATE\tREASON")
	for _, d := range letters {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", d.ID, d.At.UTC().Format(time.RFC3339), d.Position,
			shortName(printable(d.Topic)), humanize.IBytes(uint64(max(d.Size, 0))), d.Class, stateOf(d), printable(d.Reason))
	}
	return w.Flush()
}

// stateOf a letter, in a few words.
func stateOf(d *sink.Letter) string {
	switch {
	case !d.Retried.IsZero():
		return "published " + d.Retried.UTC().Format(time.RFC3339)
	case d.Truncated != "":
		return "not whole: " + d.Truncated
	}
	return "put aside"
}

// shortName keeps a line of the list readable: a row may name any topic, and the JSON
// and show have it whole.
func shortName(text string) string {
	const most = 48 // a class, a time and a position fit beside it
	if runes := []rune(text); len(runes) > most {
		return string(runes[:most-1]) + "…"
	}
	return text
}

// printable text of a row: it may hold anything.
func printable(text string) string {
	if text == "" {
		return "-"
	}
	quoted := fmt.Sprintf("%q", text)
	return strings.ReplaceAll(quoted[1:len(quoted)-1], `\"`, `"`)
}

func (l *Letters) show(ctx context.Context, kafka *sink.Kafka, out io.Writer) error {
	letters, _, err := kafka.Letters(ctx)
	if err != nil {
		return err
	}
	at := slices.IndexFunc(letters, func(d *sink.Letter) bool { return d.ID == l.ID[0] })
	if at < 0 {
		return withCode(exitConfig, fmt.Errorf("there is no dead letter %s; walstream dead-letters list has all", l.ID[0]))
	}
	d := letters[at]
	record, err := kafka.LetterRecord(ctx, d)
	if err != nil {
		return err
	}
	if l.Raw {
		_, err := out.Write(record.Value)
		return err
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s, %s, position %s\n", d.ID, stateOf(d), d.Position)
	fmt.Fprintf(&b, "key: %s\n", text(record.Key))
	for _, h := range record.Headers {
		fmt.Fprintf(&b, "header %s: %s\n", printable(h.Key), text(h.Value))
	}
	fmt.Fprintf(&b, "value (%d bytes):\n%s\n", len(record.Value), payload(record.Value))
	_, err = io.WriteString(out, b.String())
	return err
}

// text of bytes that may be none.
func text(b []byte) string {
	switch {
	case b == nil:
		return "null"
	case utf8.Valid(b):
		return fmt.Sprintf("%q", b)
	}
	return "hex " + hex.EncodeToString(b)
}

// payload as people read it: text as it stands, else as a dump in hexadecimal.
func payload(b []byte) string {
	switch {
	case b == nil:
		return "null"
	case utf8.Valid(b):
		return string(b)
	}
	return strings.TrimSuffix(hex.Dump(b), "\n")
}

// retry publishes the letters that were chosen, and says what became of each.
func (l *Letters) retry(ctx context.Context, kafka *sink.Kafka, s streams) error {
	fmt.Fprintln(s.err, "Each letter is published in a transaction of its own, together with a note in the dead-letter topic: a second retry finds it done.\n"+
		"They come behind what was published since, also of the same key; walstream-event-id and walstream-position are the row's own, walstream-replay marks them.")
	chosen := func(d *sink.Letter) bool {
		return slices.Contains(l.ID, d.ID) || l.All && (d.Retried.IsZero() || l.Again)
	}
	published, failed := 0, 0
	seen := map[string]bool{}
	options := sink.RetryOptions{ToTopic: l.ToTopic, Again: l.Again, By: operator()}
	err := kafka.Retry(ctx, chosen, options, func(d *sink.Letter, topic string, err error) {
		seen[d.ID] = true
		if err != nil {
			failed++
			fmt.Fprintf(s.out, "%s  not published: %s\n", d.ID, err)
			return
		}
		published++
		fmt.Fprintf(s.out, "%s  published to %s\n", d.ID, topic)
	})
	if err != nil {
		return err
	}
	for _, id := range l.ID {
		if !seen[id] {
			failed++
			fmt.Fprintf(s.out, "%s  not published: there is no such dead letter\n", id)
		}
	}
	fmt.Fprintf(s.out, "published %d, not published %d\n", published, failed)
	if failed > 0 {
		return withCode(exitRefusedRecord, fmt.Errorf("%d dead letters were not published", failed))
	}
	return nil
}
