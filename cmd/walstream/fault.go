package main

import (
	"fmt"
	"strings"

	"github.com/alecthomas/kong"
)

// fault is one thing wrong with the configuration.
type fault struct {
	name    string // the setting, or the name that is no setting
	value   string // as written; masked when secret; empty: there is none to show
	origin  string
	problem string // what is wrong, and what is allowed or nearest
}

func (f fault) String() string {
	text := f.name
	if f.value != "" {
		text += fmt.Sprintf(" = %q", f.value)
	}
	if f.origin != "" {
		text += " (" + f.origin + ")"
	}
	return text + ": " + f.problem
}

// configError is every fault of the configuration at once.
type configError struct{ faults []fault }

func (e *configError) Error() string {
	var b strings.Builder
	if len(e.faults) == 1 {
		b.WriteString("the configuration has a fault:")
	} else {
		fmt.Fprintf(&b, "the configuration has %d faults:", len(e.faults))
	}
	for _, f := range e.faults {
		b.WriteString("\n  " + f.String())
	}
	return b.String()
}

// report collects, while the layers are read, where each value came from and
// what is wrong.
type report struct {
	flags    map[string]*kong.Flag // by name, the flags that are no settings too
	settings []*kong.Flag          // in the order of Config
	own      map[string][]ownFlag  // by name, the flags that commands have for themselves
	commands []string
	words    map[string][]string // of a command, one of which follows it
	origins  map[string]string   // of each setting that is not at its default
	texts    map[string]string   // as written there, for messages
	faults   []fault
	blind    bool // the file could not be read: what is missing may stand there
}

// ownFlag is a flag of one command; neither file nor variables know it.
type ownFlag struct {
	command string
	flag    *kong.Flag
}

func newReport() *report {
	return &report{
		flags: map[string]*kong.Flag{}, own: map[string][]ownFlag{}, words: map[string][]string{}, origins: map[string]string{}, texts: map[string]string{},
	}
}

// knows tells the report which names exist.
func (r *report) knows(model *kong.Application) {
	for _, f := range model.Flags {
		r.flags[f.Name] = f
		if f.Name != flagConfig && f.Name != flagHelp {
			r.settings = append(r.settings, f)
		}
	}
	for _, c := range model.Children {
		r.commands = append(r.commands, c.Name)
		for _, f := range c.Flags {
			r.own[f.Name] = append(r.own[f.Name], ownFlag{c.Name, f})
		}
		for _, p := range c.Positional {
			r.words[c.Name] = strings.Split(p.Tag.Get("words"), ",")
		}
	}
}

// add notes a fault of a name that is no setting, or of a place.
func (r *report) add(name, origin, problem string) {
	r.faults = append(r.faults, fault{name: name, origin: origin, problem: problem})
}

// refuse notes a fault of a setting. One a setting is enough: the second is most
// often an echo of the first.
func (r *report) refuse(name, problem string) {
	if r.faulty(name) {
		return
	}
	value := r.texts[name]
	if value == "" && r.flags[name] != nil && !r.set(name) {
		value = formatValue(r.flags[name].Target)
	}
	if f := r.flags[name]; f != nil {
		value = mask(f.Tag.Get("secret"), value)
	}
	r.faults = append(r.faults, fault{name: name, value: value, origin: r.origin(name), problem: problem})
}

func (r *report) faulty(name string) bool {
	for _, f := range r.faults {
		if f.name == name {
			return true
		}
	}
	return false
}

// set tells whether the setting was given anywhere.
func (r *report) set(name string) bool { return r.origins[name] != "" }

func (r *report) origin(name string) string {
	if o := r.origins[name]; o != "" {
		return o
	}
	return "default"
}

func (r *report) err() error {
	if len(r.faults) == 0 {
		return nil
	}
	return withCode(exitConfig, &configError{faults: r.faults})
}
