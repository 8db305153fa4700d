package main

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/alecthomas/kong"
	"github.com/jackc/pglogrepl"
)

// cli is kong's grammar. Config is part of it, so every setting is a flag of
// every command.
type cli struct {
	Config
	ConfigFile string `name:"config" common:"yes" placeholder:"FILE" help:"YAML file of settings by these names"`
	Help       bool   `name:"help" short:"h" help:"show this; walstream config --help shows every setting"`

	Check   Check    `cmd:"" name:"check" help:"name everything that is missing, each with the fix"`
	Setup   Setup    `cmd:"" name:"setup" help:"make publication and slot, or print the SQL for a DBA"`
	Status  Status   `cmd:"" name:"status" help:"positions, lag, and who holds the slot, from any machine"`
	Pause   Pause    `cmd:"" name:"pause" help:"all instances leave the slot in peace for a while"`
	Resume  struct{} `cmd:"" name:"resume" help:"end a pause"`
	Audit   Audit    `cmd:"" name:"audit" help:"compare table and topics: missing, twice, out of order, torn"`
	Replay  Replay   `cmd:"" name:"replay" help:"publish rows once more: from an LSN, a time, an id"`
	Recover Recover  `cmd:"" name:"recover" help:"slot, server or Kafka lost: publish what no topic has"`
	Prune   Prune    `cmd:"" name:"prune" help:"delete rows that are published, and old enough"`
	Letters Letters  `cmd:"" name:"dead-letters" help:"list, show or retry: rows that were put aside"`
	Skip    Skip     `cmd:"" name:"skip" help:"let one row pass that holds the stream"`
	Drop    Drop     `cmd:"" name:"drop" help:"remove slot, publication and checkpoint"`
	Show    Show     `cmd:"" name:"config" help:"the settings in force, or their schema"`
	Version struct{} `cmd:"" name:"version" help:"print the version"`
}

// The flags that are no settings: the file does not know them.
const (
	flagConfig = "config"
	flagHelp   = "help"
)

// invocation is what a command line asks for.
type invocation struct {
	command string // empty: stream
	help    bool
	config  *Config
	grammar *cli // the commands' own flags
	model   *kong.Application
}

// load reads defaults, the file, variables (environ is like os.Environ) and
// flags; of several words the last in this order counts. The error holds all
// faults, and the invocation is there beside it.
func load(args, environ []string) (*invocation, error) {
	grammar, r := &cli{}, newReport()
	k, err := kong.New(grammar, append(mappers(r), kong.Name("walstream"), kong.NoDefaultHelp())...)
	if err != nil {
		return nil, fmt.Errorf("build the command line's grammar: %w", err)
	}
	r.knows(k.Model)
	setDefaults(k.Model.Flags)
	for _, c := range k.Model.Children {
		setDefaults(c.Flags)
	}
	ctx, err := kong.Trace(k, r.tidy(args))
	if err == nil {
		err = ctx.Error
	}
	if err != nil {
		return nil, fmt.Errorf("read the command line: %w", err)
	}
	command, _, _ := strings.Cut(ctx.Command(), " ")
	inv := &invocation{command: command, config: &grammar.Config, grammar: grammar, model: k.Model}
	inv.config.report = r
	inv.help, _ = ctx.FlagValue(r.flags[flagHelp]).(bool)
	if inv.help { // whoever asks for help may well have mistyped
		return inv, nil
	}
	if inv.command == commandVersion || inv.command == commandConfig && grammar.asks(ctx, r, "schema", "settings") {
		_, err := ctx.Apply() // of the command's own flags; no setting counts
		return inv, errors.Join(r.err(), err)
	}

	env := readEnvironment(environ, r)
	inv.config.readTraceVariables(environ)
	path, _ := ctx.FlagValue(r.flags[flagConfig]).(string)
	if v, ok := env.values[flagConfig]; ok && !r.set(flagConfig) {
		path, r.origins[flagConfig] = v.text, v.origin
	}
	file, outboxes := readFile(path, r)
	// Of the resolvers that know a flag kong takes the last one's word, and a
	// flag of the command line is not resolved at all.
	ctx.AddResolver(file)
	ctx.AddResolver(env)
	if err := ctx.Resolve(); err != nil {
		return nil, fmt.Errorf("read settings: %w", err)
	}
	if _, err := ctx.Apply(); err != nil {
		return nil, fmt.Errorf("read settings: %w", err)
	}
	inv.config.Outboxes = outboxes
	inv.config.emptied()
	inv.config.validate()
	if own := grammar.own(inv.command); own != nil {
		own.validate(r)
	}
	return inv, r.err()
}

// asks reports that one of the switches of walstream config is on: what it prints
// does not depend on settings.
func (*cli) asks(ctx *kong.Context, r *report, names ...string) bool {
	return slices.ContainsFunc(names, func(name string) bool {
		on, _ := ctx.FlagValue(r.own[name][0].flag).(bool)
		return on
	})
}

// own are the flags of a command that it checks itself; nil: there is nothing to
// check.
func (c *cli) own(command string) interface{ validate(r *report) } {
	switch command {
	case commandAudit:
		return &c.Audit
	case commandReplay:
		return &c.Replay
	case commandRecover:
		return &c.Recover
	case commandPrune:
		return &c.Prune
	case commandLetters:
		return &c.Letters
	case commandSkip:
		return &c.Skip
	case commandStatus:
		return &c.Status
	case commandPause:
		return &c.Pause
	case commandSetup:
		return &c.Setup
	}
	return nil
}

// checkOwn checks what the table of a command's flags itself says: values and range.
func (r *report) checkOwn(command string) {
	for _, name := range slices.Sorted(maps.Keys(r.own)) {
		for _, o := range r.own[name] {
			if o.command != command {
				continue
			}
			if problem := cmp.Or(outsideValues(o.flag.Tag, o.flag.Target), outsideRange(o.flag.Tag, o.flag.Target)); problem != "" {
				r.refuse(name, problem)
			}
		}
	}
}

// mappers makes kong read every type of setting by parseValue, and note a fault
// where it would stop at the first one.
func mappers(r *report) []kong.Option {
	var options []kong.Option
	for _, sample := range []any{
		"", false, 0, []string(nil), time.Duration(0), Size(0), Table{}, LSNRange{}, pglogrepl.LSN(0),
	} {
		options = append(options, kong.TypeMapper(reflect.TypeOf(sample), noting{r}))
	}
	return options
}

// noting is a kong.Mapper that never fails.
type noting struct{ report *report }

// Decode is called for flags of the command line, and for what a layer resolved;
// the layer has then noted its origin.
func (m noting) Decode(ctx *kong.DecodeContext, target reflect.Value) error {
	if ctx.Value.Flag == nil { // the word behind a command: tidy leaves none but those it knows
		target.SetString(ctx.Scan.Pop().String())
		return nil
	}
	text := "true" // of a flag without a value: tidy leaves none but switches
	if ctx.Scan.Peek().Type == kong.FlagValueToken {
		text = ctx.Scan.Pop().String()
	}
	name, flag := ctx.Value.Name, "flag --"+ctx.Value.Name
	if m.report.origins[name] == flag {
		m.report.refuse(name, "is given twice; a list is written with commas")
		return nil
	}
	if !m.report.set(name) {
		m.report.origins[name], m.report.texts[name] = flag, text
	}
	if err := parseValue(target, text); err != nil {
		m.report.refuse(name, explain(err, ctx.Value.Tag))
	}
	return nil
}

// setDefaults does what kong's Reset does, without the mappers: a default is no
// origin.
func setDefaults(flags []*kong.Flag) {
	for _, f := range flags {
		if !f.HasDefault {
			continue
		}
		if err := parseValue(f.Target, f.Default); err != nil {
			panic(fmt.Sprintf("walstream: bug: default of --%s: %v", f.Name, err))
		}
	}
}

// tidy writes every flag as --name=value and leaves out what does not exist,
// noting each: kong would stop at the first one, and would take a value that
// begins with a dash for a flag and name it.
func (r *report) tidy(args []string) []string {
	var out, own []string
	for i := 0; i < len(args); i++ {
		arg := args[i]
		name, _, hasValue := strings.Cut(arg, "=")
		flag := r.flags[strings.TrimPrefix(name, "--")]
		if o, ok := r.own[strings.TrimPrefix(name, "--")]; ok {
			flag = o[0].flag
			own = append(own, flag.Name)
		}
		next := ""
		if i+1 < len(args) {
			next = args[i+1]
		}
		switch {
		case arg == "-h", arg == flagHelp:
			out = append(out, "--"+flagHelp)
		case !strings.HasPrefix(arg, "-"):
			switch given := slices.ContainsFunc(out, r.isCommand); {
			case given && slices.Contains(r.words[out[0]], arg) && !slices.Contains(out, arg):
				out = slices.Insert(out, 1, arg)
			case given || !slices.Contains(r.commands, arg):
				r.unexpected(arg)
			default:
				out = append([]string{arg}, out...) // its own flags have to follow it
			}
		case flag == nil || !strings.HasPrefix(arg, "--"):
			r.add(name, "flag", r.unknownFlag(strings.TrimLeft(name, "-")))
			if !hasValue && next != "" && !strings.HasPrefix(next, "-") && !r.isCommand(next) {
				i++ // its value, it seems
			}
		case hasValue || flag.IsBool():
			out = append(out, arg)
		case i+1 == len(args) || r.isFlag(next):
			r.origins[flag.Name] = "flag --" + flag.Name
			r.refuse(flag.Name, "needs a value")
		default:
			i++
			out = append(out, arg+"="+next)
		}
	}
	return r.withoutForeign(out, own)
}

// withoutForeign takes out, and notes, the flags of another command than the one
// given.
func (r *report) withoutForeign(args, own []string) []string {
	for _, name := range own {
		if len(args) > 0 && slices.ContainsFunc(r.own[name], func(o ownFlag) bool { return o.command == args[0] }) {
			continue
		}
		r.add("--"+name, "flag", "is a flag of: "+commandsOf(r.own[name]))
		args = slices.DeleteFunc(args, func(arg string) bool { return arg == "--"+name || strings.HasPrefix(arg, "--"+name+"=") })
	}
	return args
}

func (r *report) isCommand(arg string) bool { return slices.Contains(r.commands, arg) }

func (r *report) isFlag(arg string) bool {
	name, _, _ := strings.Cut(arg, "=")
	if !strings.HasPrefix(name, "--") {
		return false
	}
	_, own := r.own[name[2:]]
	return own || r.flags[name[2:]] != nil
}

// unexpected notes an argument that is no command. It is shown only when it
// looks like one: it may be half of a password with a blank in it.
func (r *report) unexpected(arg string) {
	problem := "there is an argument that is neither a flag nor a command"
	if near := nearest(arg, r.commands); near != "" {
		problem = fmt.Sprintf("%q is no command; nearest: %s", arg, near)
	}
	r.add("command line", "", problem+"; commands are "+strings.Join(r.commands, ", ")+", and none to stream")
}
