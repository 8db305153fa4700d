package main

import (
	"bytes"
	"fmt"
	"io"
	"reflect"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
)

func TestParseOptions(t *testing.T) {
	plain := options{database: "bank", topic: "deposits", rate: 2000}
	with := func(change func(*options)) options {
		o := plain
		change(&o)
		return o
	}
	for _, c := range []struct {
		args string
		env  map[string]string
		want options
		err  string
	}{
		{want: plain},
		{env: map[string]string{"EVENTS": "5000"}, want: with(func(o *options) { o.events = 5000 })},
		{args: "-events 10", env: map[string]string{"EVENTS": "5000"}, want: with(func(o *options) { o.events = 10 })},
		{
			env: map[string]string{"WALSTREAM_POSTGRES": "postgres://h/d", "WALSTREAM_KAFKA_BROKERS": "a:1,b:2"},
			want: with(func(o *options) {
				o.postgres, o.brokers = "postgres://h/d", []string{"a:1", "b:2"}
			}),
		},
		{
			args: "--kafka-brokers c:3 --postgres host=x --rate 5 --database other --topic t",
			env:  map[string]string{"WALSTREAM_POSTGRES": "postgres://h/d", "WALSTREAM_KAFKA_BROKERS": "a:1,b:2"},
			want: options{postgres: "host=x", brokers: []string{"c:3"}, database: "other", topic: "t", rate: 5},
		},
		{args: "-events 0", err: `events: "0"`},
		{args: "-events many", err: `events: "many"`},
		{args: "-rate 0", err: "rate: 0"},
		{args: "-database Bank", err: `database: "Bank"`},
		{args: "-database other", err: "database: goes with -postgres"},
		{args: "-topic a/b", err: `topic: "a/b"`},
		{args: "5000", err: `"5000" is not a flag`},
		{args: "-evnts 1", err: "-evnts"},
	} {
		t.Run(fmt.Sprint(c.args, c.env), func(t *testing.T) {
			got, err := parseOptions(strings.Fields(c.args), func(name string) string { return c.env[name] }, io.Discard)
			switch {
			case c.err != "":
				if err == nil || !strings.Contains(err.Error(), c.err) {
					t.Errorf("error %v, want %q", err, c.err)
				}
			case err != nil:
				t.Error(err)
			case !reflect.DeepEqual(got, c.want):
				t.Errorf("got %+v, want %+v", got, c.want)
			}
		})
	}
}

func TestWithDatabase(t *testing.T) {
	for _, given := range []string{
		"postgres://u:p%40ss@h:5433/first?sslmode=disable",
		"postgresql://u:p%40ss@h:5433?sslmode=disable&dbname=first",
		"postgres://u:p%40ss@h:5433/?sslmode=disable",
		"host=h port=5433 user=u password='p@ss' dbname=first sslmode=disable",
		"host=h port=5433 user=u password=p@ss sslmode=disable",
	} {
		config, err := pgx.ParseConfig(withDatabase(given, "bank"))
		if err != nil {
			t.Errorf("%s: %v", given, err)
			continue
		}
		got := fmt.Sprint(config.User, config.Password, config.Host, config.Port, config.Database, config.TLSConfig == nil)
		if want := fmt.Sprint("u", "p@ss", "h", 5433, "bank", true); got != want {
			t.Errorf("%s: got %s, want %s", given, got, want)
		}
	}
}

func TestWithoutPassword(t *testing.T) {
	for _, given := range []string{
		"postgres://u:secret@h:5433/d?sslmode=disable",
		"host=h port=5433 user=u password=secret dbname=d sslmode=disable",
	} {
		if got := withoutPassword(given); got != "postgres://u@h:5433/d" {
			t.Errorf("%s: got %s", given, got)
		}
	}
}

func TestChildLogShowsWarnings(t *testing.T) {
	var shown bytes.Buffer
	log := &childLog{out: &screen{out: &shown}}
	const written = `{"level":"info","message":"quiet"}
{"level":"warn","time":"2026-11-30T10:00:00Z","message":"loud","slot":"s"}

panic: walstream: bug
{"level":"error","message":"cut in two"}
{"level":"info"`
	for i := range len(written) { // as slowly as a pipe may give it
		if n, err := log.Write([]byte{written[i]}); n != 1 || err != nil {
			t.Fatal(n, err)
		}
	}
	const want = `walstream: 10:00:00.000 WRN loud slot=s
walstream: <nil> ERR cut in two
`
	if shown.String() != want {
		t.Errorf("shown:\n%s\nwant:\n%s", shown.String(), want)
	}
}

func TestLastLines(t *testing.T) {
	log := strings.Repeat("old\n", 100) + strings.Repeat("new\n", shownLines-1) + `{"level":"error","message":"end"}` + "\n"
	lines := strings.Split(lastLines(log), "\n")
	if len(lines) != shownLines || lines[0] != "  new" || !strings.HasSuffix(lines[shownLines-1], "ERR end") {
		t.Errorf("%d lines, from %q to %q", len(lines), lines[0], lines[len(lines)-1])
	}
}
