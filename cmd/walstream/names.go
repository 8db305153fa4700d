package main

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/agnivade/levenshtein"
)

// elsewhere answers names that people look for and that are no settings.
var elsewhere = map[string]string{
	"acks":          "there is nothing to set: walstream always waits for all in-sync replicas",
	"version":       "the command is: walstream version",
	"outboxes":      "a list of tables can be given in the file only",
	sectionDebezium: "Debezium's options can be given in the file only",
	flagConfig:      "a file cannot name another one",
	flagHelp:        "it is a flag only",
}

// unknown says what is wrong with a name that is no setting, and which one was
// meant. prefix is what the place puts before a setting's name.
func (r *report) unknown(name, prefix string) string {
	if answer := elsewhere[name]; answer != "" {
		return "is no setting; " + answer
	}
	if own, ok := r.own[name]; ok {
		return "is no setting; it is a flag of: " + commandsOf(own)
	}
	var valid []string
	for _, f := range r.settings {
		valid = append(valid, f.Name)
	}
	if prefix == "--" {
		valid = append(valid, flagConfig, flagHelp)
	}
	if near := nearest(name, valid); near != "" {
		return "is no setting; nearest: " + prefix + near
	}
	return "is no setting; walstream config --help shows all"
}

func commandsOf(own []ownFlag) string {
	var commands []string
	for _, o := range own {
		commands = append(commands, "walstream "+o.command)
	}
	return strings.Join(commands, ", ")
}

// unknownFlag is unknown for flags, which commands may have of their own.
func (r *report) unknownFlag(name string) string {
	if near := nearest(name, slices.Sorted(maps.Keys(r.own))); near != "" && distance(name, near) <= 2 {
		return "is no setting; nearest: --" + near
	}
	return r.unknown(name, "--")
}

// nearest returns the valid name that was most likely meant: the one that takes
// the fewest edits, as long as half of the name stays; else the closest of those
// that share a word with it; else nothing.
func nearest(name string, valid []string) string {
	best, found := len(name)/2+1, ""
	sharing, shared := math.MaxInt, ""
	for _, v := range valid {
		d := distance(name, v)
		if d < best {
			best, found = d, v
		}
		if d < sharing && shareWord(name, v) {
			sharing, shared = d, v
		}
	}
	return cmp.Or(found, shared)
}

func shareWord(a, b string) bool {
	words := strings.Split(plain(b), "-")
	for word := range strings.SplitSeq(plain(a), "-") {
		if slices.Contains(words, word) {
			return true
		}
	}
	return false
}

// distance counts edits, not minding case and the two ways to join words.
func distance(a, b string) int { return levenshtein.ComputeDistance(plain(a), plain(b)) }

func plain(name string) string { return strings.ReplaceAll(strings.ToLower(name), "_", "-") }
