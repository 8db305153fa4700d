package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
)

// streams are what a command reads and writes beside the servers: results go to
// out, everything else to err.
type streams struct{ out, err io.Writer }

func main() {
	os.Exit(run(context.Background(), os.Args[1:], os.Environ(), streams{out: os.Stdout, err: os.Stderr}))
}

// run is the whole program but for the process around it.
func run(ctx context.Context, args, environ []string, s streams) int {
	inv, err := load(args, environ)
	if err == nil {
		err = inv.execute(ctx, s)
	}
	if err != nil && !isLogged(err) {
		text := err.Error()
		if inv != nil {
			text = inv.config.Redact(text)
		}
		fmt.Fprintln(s.err, "walstream: "+text)
	}
	return exitCode(err)
}

func (inv *invocation) execute(ctx context.Context, s streams) error {
	if inv.help {
		return printHelp(s.out, inv)
	}
	switch inv.command {
	case "":
		return stream(ctx, inv.config, s)
	case commandAudit:
		return runAudit(ctx, inv.config, inv.audit, s)
	case "check":
		return check(ctx, inv.config, s)
	case "config":
		return printConfig(s.out, inv.config)
	case "version":
		return printVersion(s.out)
	}
	return errors.New("bug: no such command: " + inv.command)
}
