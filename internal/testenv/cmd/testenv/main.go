// Command testenv fetches and runs the servers that tests use.
//
//	testenv fetch [-pg 15,18] [-kafka]              download and prepare, so that tests start quickly
//	testenv up    [-pg 18] [-kafka] [-dir DIR]      run servers and print their addresses until interrupted
//	testenv exec  [-pg 15,18] [-kafka] -- COMMAND   run a command with servers named in its environment
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/walstream/walstream/internal/testenv" //nolint:depguard // this command is for the servers
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := run(ctx, os.Args[1:])
	var ended *exec.ExitError
	switch {
	case errors.As(err, &ended):
		os.Exit(max(ended.ExitCode(), 1))
	case errors.Is(err, flag.ErrHelp):
		os.Exit(2)
	case err != nil:
		fmt.Fprintln(os.Stderr, "testenv:", err)
		os.Exit(1)
	}
}

const usage = `usage: testenv fetch|up|exec [flags] [-- command]
  fetch  download and prepare servers, so that tests start quickly
  up     run servers and print their addresses until interrupted
  exec   run a command with the servers named in its environment
`

// wanted is what the flags ask for.
type wanted struct {
	majors  []int
	kafka   bool
	brokers int
	dir     string
	pgPort  int
	kPort   int
	command []string
}

func run(ctx context.Context, args []string) error {
	if len(args) == 0 {
		fmt.Fprint(os.Stderr, usage)
		return flag.ErrHelp
	}
	w, err := parse(args)
	if err != nil {
		return err
	}
	switch args[0] {
	case "fetch":
		return fetch(ctx, w)
	case "up":
		return withServers(ctx, w, func(env []string) error {
			for _, variable := range env {
				fmt.Println(variable)
			}
			fmt.Fprintln(os.Stderr, "running until interrupted")
			<-ctx.Done()
			return nil
		})
	case "exec":
		if len(w.command) == 0 {
			return errors.New("exec: no command after --")
		}
		return withServers(ctx, w, func(env []string) error { return command(ctx, w.command, env) })
	}
	fmt.Fprint(os.Stderr, usage)
	return flag.ErrHelp
}

func parse(args []string) (wanted, error) {
	var w wanted
	var majors string
	flags := flag.NewFlagSet("testenv "+args[0], flag.ContinueOnError)
	flags.StringVar(&majors, "pg", "", "PostgreSQL `majors`, separated by commas")
	flags.BoolVar(&w.kafka, "kafka", false, "Kafka too")
	flags.IntVar(&w.brokers, "brokers", 1, "number of Kafka's brokers")
	flags.StringVar(&w.dir, "dir", "", "keep the data in this `directory`; default: temporary")
	flags.IntVar(&w.pgPort, "pg-port", 0, "`port` of the first PostgreSQL; default: any")
	flags.IntVar(&w.kPort, "kafka-port", 0, "`port` of the first broker; default: any")
	if err := flags.Parse(args[1:]); err != nil {
		return w, flag.ErrHelp // printed by flags
	}
	w.command = flags.Args()
	for field := range strings.SplitSeq(majors, ",") {
		if field == "" {
			continue
		}
		major, err := strconv.Atoi(field)
		if err != nil {
			return w, fmt.Errorf("-pg %s: not a list of numbers", majors)
		}
		w.majors = append(w.majors, major)
	}
	if majors == "" && !w.kafka {
		w.majors, w.kafka = testenv.Majors(), true
	}
	return w, nil
}

// fetch starts each server once: what a start needs is then in the cache.
func fetch(ctx context.Context, w wanted) error {
	began := time.Now()
	err := withServers(ctx, w, func([]string) error { return nil })
	if err == nil {
		fmt.Fprintf(os.Stderr, "ready after %v\n", time.Since(began).Round(time.Millisecond))
	}
	return err
}

// withServers starts the servers, hands over the variables that name them, and
// ends them afterwards.
func withServers(ctx context.Context, w wanted, do func(env []string) error) error {
	var env []string
	for i, major := range w.majors {
		o := testenv.PGOptions{Major: major}
		if w.dir != "" {
			o.DataDir = filepath.Join(w.dir, fmt.Sprintf("pg%d", major))
		}
		if w.pgPort != 0 {
			o.Port = w.pgPort + i
		}
		p, err := testenv.StartPostgres(ctx, o)
		if err != nil {
			return err
		}
		defer p.Close()
		fmt.Fprintf(os.Stderr, "PostgreSQL %d (%s) on port %d\n", p.Major, p.From, p.Port)
		env = append(env, fmt.Sprintf("%s_%d=%s", testenv.EnvPostgresURL, p.Major, p.DSN("")))
		if i == len(w.majors)-1 {
			env = append(env, fmt.Sprintf("%s=%s", testenv.EnvPostgresURL, p.DSN("")))
		}
	}
	if w.kafka {
		o := testenv.KafkaOptions{Brokers: w.brokers, Real: true, Port: w.kPort}
		if w.dir != "" {
			o.DataDir = filepath.Join(w.dir, "kafka")
		}
		k, err := testenv.StartKafka(ctx, o)
		if err != nil {
			return err
		}
		defer k.Close()
		fmt.Fprintf(os.Stderr, "Kafka (%s) at %s\n", k.From, strings.Join(k.Brokers, ","))
		env = append(env, fmt.Sprintf("%s=%s", testenv.EnvKafkaBrokers, strings.Join(k.Brokers, ",")))
	}
	return do(env)
}

// command runs with the variables added. An interrupt is the command's to
// answer; the servers end after it.
func command(ctx context.Context, args, env []string) error {
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 30 * time.Second
	cmd.Env = append(os.Environ(), env...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	return cmd.Run()
}
