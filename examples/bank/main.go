package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"strconv"
	"strings"
	"syscall"
)

// options of the demo.
type options struct {
	postgres string   // URL or DSN; empty: a server of our own
	brokers  []string // empty: an in-process Kafka
	database string   // made by the demo
	topic    string   // made by walstream
	events   int64    // deposits, 0 until Ctrl-C
	rate     int      // deposits per second
}

func main() {
	o, err := parseOptions(os.Args[1:], os.Getenv, os.Stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return
	case err != nil:
		fmt.Fprintln(os.Stderr, "bank: "+err.Error())
		os.Exit(2)
	}
	if o.postgres == "" {
		// PGSERVICE, PGOPTIONS and the like are meant for another server.
		for _, variable := range os.Environ() {
			if name, _, _ := strings.Cut(variable, "="); strings.HasPrefix(name, "PG") {
				_ = os.Unsetenv(name)
			}
		}
	}
	ctx, until, release := onSignals()
	verdict, err := run(ctx, until, o, newScreen(os.Stderr))
	release()
	if verdict != nil && o.events > 0 {
		// Encoding numbers cannot fail.
		_ = json.NewEncoder(os.Stdout).Encode(verdict)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bank: "+err.Error())
		os.Exit(1)
	}
}

var (
	databaseName = regexp.MustCompile(`^[a-z][a-z0-9_]{0,39}$`)
	topicName    = regexp.MustCompile(`^[A-Za-z0-9._-]{1,200}$`)
)

// parseOptions takes flags over variables over defaults.
func parseOptions(args []string, getenv func(string) string, usage io.Writer) (options, error) {
	var o options
	var brokers, events string
	flags := flag.NewFlagSet("bank", flag.ContinueOnError)
	flags.SetOutput(usage)
	flags.StringVar(&o.postgres, "postgres", getenv("WALSTREAM_POSTGRES"),
		"`URL` or DSN of a PostgreSQL with wal_level=logical (WALSTREAM_POSTGRES); empty: one of the demo's own")
	flags.StringVar(&brokers, "kafka-brokers", getenv("WALSTREAM_KAFKA_BROKERS"),
		"`HOST:PORT,...` of Kafka (WALSTREAM_KAFKA_BROKERS); empty: one in this process")
	flags.StringVar(&o.database, "database", "bank", "database to make on the given PostgreSQL")
	flags.StringVar(&o.topic, "topic", "deposits", "topic to make")
	flags.StringVar(&events, "events", getenv("EVENTS"), "deposits to make (EVENTS); empty: until Ctrl-C")
	flags.IntVar(&o.rate, "rate", 2000, "deposits per second")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if brokers != "" {
		o.brokers = strings.Split(brokers, ",")
	}
	if events != "" {
		var err error
		if o.events, err = strconv.ParseInt(events, 10, 64); err != nil || o.events < 1 {
			return o, fmt.Errorf("events: %q is not a number from 1 up", events)
		}
	}
	switch {
	case flags.NArg() > 0:
		return o, fmt.Errorf("%q is not a flag: bank -help lists them", flags.Arg(0))
	case o.rate < 1 || o.rate > 100_000:
		return o, fmt.Errorf("rate: %d is not from 1 to 100000", o.rate)
	case !databaseName.MatchString(o.database):
		return o, fmt.Errorf("database: %q is not one of at most 40 small letters, digits and _", o.database)
	case o.postgres == "" && o.database != "bank":
		return o, errors.New("database: goes with -postgres: the demo's own server has the names of sql/publication.sql")
	case !topicName.MatchString(o.topic):
		return o, fmt.Errorf("topic: %q is not one of at most 200 letters, digits and ._-", o.topic)
	}
	return o, nil
}

// errInterrupted is the cause of a context ended by a signal.
var errInterrupted = errors.New("interrupted")

// onSignals returns a context for the run and, below it, one for the making of
// deposits. The first signal ends the deposits, the second the run; a third ends
// the process as it stands.
func onSignals() (ctx, until context.Context, release func()) {
	ctx, cancel := context.WithCancelCause(context.Background())
	until, enough := context.WithCancelCause(ctx)
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	go func() {
		select {
		case <-signals:
			enough(errInterrupted)
		case <-ctx.Done():
			return
		}
		select {
		case <-signals:
			signal.Stop(signals)
			cancel(errInterrupted)
		case <-ctx.Done():
		}
	}()
	return ctx, until, func() { cancel(nil) }
}
