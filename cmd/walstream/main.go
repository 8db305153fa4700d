package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
)

// streams are what a command reads and writes beside the servers: results go to
// out, everything else to err.
type streams struct {
	out, err io.Writer
	hide     func(redact func(string) string) // secrets in the process's arguments; may be nil
	in       io.Reader                        // asked for confirmations; nil: there is nobody to ask
}

func main() {
	var args []string // clones: those of the process are written over
	for _, arg := range os.Args[1:] {
		args = append(args, strings.Clone(arg))
	}
	s := streams{out: os.Stdout, err: os.Stderr, in: os.Stdin, hide: hideArguments}
	os.Exit(run(context.Background(), args, os.Environ(), s))
}

// run is the whole program but for the process around it.
func run(ctx context.Context, args, environ []string, s streams) int {
	inv, err := load(args, environ)
	if inv != nil && s.hide != nil {
		s.hide(inv.config.Redact)
	}
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
	c, own := inv.config, inv.grammar
	switch inv.command {
	case "":
		return stream(ctx, c, s)
	case commandAudit:
		return runAudit(ctx, c, &own.Audit, s)
	case commandReplay:
		return runReplay(ctx, c, &own.Replay, s)
	case commandRecover:
		return runRecover(ctx, c, &own.Recover, s)
	case commandPrune:
		return runPrune(ctx, c, &own.Prune, s)
	case commandLetters:
		return runLetters(ctx, c, &own.Letters, s)
	case commandSkip:
		return runSkip(ctx, c, &own.Skip, s)
	case commandStatus:
		return runStatus(ctx, c, &own.Status, s)
	case commandPause:
		return runPause(ctx, c, &own.Pause, s)
	case commandResume:
		return runResume(ctx, c, s)
	case commandSetup:
		return runSetup(ctx, c, &own.Setup, s)
	case commandDrop:
		return runDrop(ctx, c, &own.Drop, s)
	case commandCheck:
		return check(ctx, c, &own.Check, s)
	case commandConfig:
		return own.Show.run(s.out, inv)
	case commandVersion:
		return printVersion(s.out)
	}
	return errors.New("bug: no such command: " + inv.command)
}
