package main

import (
	_ "embed"
	"errors"
	"fmt"
	"maps"
	"slices"

	"go.yaml.in/yaml/v4"
)

//go:embed explained.yaml
var explainedFile []byte

// explanations are the differences that are meant to be.
type explanations struct {
	// Rules hold for every record: name and reason.
	Rules map[string]string `yaml:"rules"`
	// Reasons by a name of their own; many cases may share one.
	Reasons map[string]string `yaml:"reasons"`
	Cases   []explained       `yaml:"cases"`
}

// explained is one difference, with both sides as they were seen.
type explained struct {
	Case      string `yaml:"case"`
	Part      string `yaml:"part"`
	Reason    string `yaml:"reason"`
	Debezium  string `yaml:"debezium"`
	Walstream string `yaml:"walstream"`
}

func (e *explained) difference() difference { return difference{e.Part, e.Debezium, e.Walstream} }

func loadExplanations(text []byte) (*explanations, error) {
	e := &explanations{}
	if err := yaml.Load(text, e, yaml.WithKnownFields()); err != nil {
		return nil, fmt.Errorf("explained.yaml: %w", err)
	}
	var faults []error
	used := map[string]bool{}
	for _, c := range e.Cases {
		used[c.Reason] = true
		if e.Reasons[c.Reason] == "" {
			faults = append(faults, fmt.Errorf("explained.yaml: %s, %s: no reason %q", c.Case, c.Part, c.Reason))
		}
		if c.Debezium == c.Walstream {
			faults = append(faults, fmt.Errorf("explained.yaml: %s, %s: no difference", c.Case, c.Part))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(e.Reasons)) {
		if !used[name] {
			faults = append(faults, fmt.Errorf("explained.yaml: reason %q is nobody's", name))
		}
	}
	for _, rule := range []string{ruleHeaders, ruleContext, ruleTime, rulePartition} {
		if e.Rules[rule] == "" {
			faults = append(faults, fmt.Errorf("explained.yaml: rule %q is not explained", rule))
		}
	}
	return e, errors.Join(faults...)
}

// verdict counts, and keeps what nobody explained.
type verdict struct {
	Cases       int `json:"cases"`
	Equal       int `json:"equal"`
	Explained   int `json:"explained"`
	Unexplained int `json:"unexplained"`
	// Stale explanations fit no difference any more.
	Stale int `json:"stale"`

	rest  []explained // differences without an explanation, to be looked at
	stale []string
}

// judge holds the differences of all cases against the explanations.
func judge(e *explanations, found map[string][]difference, rules map[string]bool) *verdict {
	v := &verdict{Cases: len(found)}
	fits := make([]bool, len(e.Cases))
	for _, name := range slices.Sorted(maps.Keys(found)) {
		open := 0
		for _, d := range found[name] {
			at := slices.IndexFunc(e.Cases, func(c explained) bool { return c.Case == name && c.difference() == d })
			if at < 0 {
				open++
				v.rest = append(v.rest, explained{name, d.Part, "", d.Debezium, d.Walstream})
				continue
			}
			fits[at] = true
		}
		switch {
		case open > 0:
			v.Unexplained++
		case len(found[name]) > 0:
			v.Explained++
		default:
			v.Equal++
		}
	}
	for i, c := range e.Cases {
		if !fits[i] {
			v.stale = append(v.stale, c.Case+", "+c.Part)
		}
	}
	for _, rule := range slices.Sorted(maps.Keys(e.Rules)) {
		if !rules[rule] {
			v.stale = append(v.stale, "rule "+rule)
		}
	}
	v.Stale = len(v.stale)
	return v
}

// wrong says what has to be looked at.
func (v *verdict) wrong() error {
	if v.Unexplained == 0 && v.Stale == 0 {
		return nil
	}
	return fmt.Errorf("%d cases differ without a reason, %d explanations fit nothing", v.Unexplained, v.Stale)
}
