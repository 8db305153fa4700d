package main

import (
	"regexp"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

const variablePrefix = "WALSTREAM_"

// given is a value as written, and where.
type given struct{ text, origin string }

// layer is a kong.Resolver: what the file, or the variables, say.
type layer struct {
	report *report
	values map[string]given
}

// Validate has nothing to do: names are checked while a layer is read.
func (l layer) Validate(*kong.Application) error { return nil }

// Resolve gives a flag's value and notes where it comes from. It is called in
// the order of the layers, so the note of the one that counts stays.
func (l layer) Resolve(_ *kong.Context, _ *kong.Path, flag *kong.Flag) (any, error) {
	v, ok := l.values[flag.Name]
	if !ok || flag.Name == flagConfig {
		return nil, nil //nolint:nilnil // kong's way to say "not here"
	}
	l.report.origins[flag.Name], l.report.texts[flag.Name] = v.origin, v.text
	return v.text, nil
}

// readEnvironment takes the variables with our prefix. A variable that is set to
// nothing is a value like any other: refused where a setting needs one.
func readEnvironment(environ []string, r *report) layer {
	env := layer{report: r, values: map[string]given{}}
	for _, entry := range slices.Sorted(slices.Values(environ)) {
		variable, text, _ := strings.Cut(entry, "=")
		if !strings.HasPrefix(strings.ToUpper(variable), variablePrefix) || notOurs(variable, text) {
			continue
		}
		name := settingOf(variable)
		if r.flags[name] == nil || name == flagHelp || variable != variableOf(name) {
			r.add(variable, "variable", r.unknownVariable(name))
			continue
		}
		env.values[name] = given{text: text, origin: "variable " + variable}
	}
	return env
}

func (r *report) unknownVariable(name string) string {
	if r.flags[name] != nil && name != flagHelp { // only its case is wrong
		return "is no setting; nearest: " + variableOf(name)
	}
	problem := r.unknown(name, "--")
	if before, near, ok := strings.Cut(problem, "nearest: --"); ok {
		return before + "nearest: " + variableOf(near)
	}
	return problem
}

func variableOf(name string) string {
	return variablePrefix + strings.ToUpper(strings.ReplaceAll(name, "-", "_"))
}

func settingOf(variable string) string {
	return strings.ReplaceAll(strings.ToLower(variable[len(variablePrefix):]), "_", "-")
}

// notOurs tells variables that carry our prefix and are meant for others: those
// of the test suite, which a binary under test inherits, and the links that
// Kubernetes puts into every pod for a Service named walstream or walstream-x.
func notOurs(variable, text string) bool {
	return strings.HasPrefix(variable, "WALSTREAM_TEST_") || variable == "WALSTREAM_CASES" ||
		kubernetesLink.MatchString(variable+"="+text)
}

// https://kubernetes.io/docs/concepts/services-networking/service/#environment-variables
var kubernetesLink = regexp.MustCompile(
	`^WALSTREAM_([A-Z0-9_]+_)?(SERVICE_HOST=|SERVICE_PORT(_[A-Z0-9_]+)?=\d+$|PORT=(tcp|udp|sctp)://|PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?=)`)
