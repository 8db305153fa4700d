package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// state is what Prometheus sees of instances over time, scraped from the real
// binary, and the alerts that fire at its end: these, and no others.
type state struct {
	name  string
	fires []string
	steps []step
}

// step is one scrape of each instance, seen again and again for minutes. An empty
// one: the instance does not answer.
type step struct {
	minutes int
	seen    map[string]string
}

// ruleMetrics are what the rules select.
var ruleMetrics = regexp.MustCompile(`\b(walstream_[a-z_]+|process_start_time_seconds)\b`)

// perMinute is how often Prometheus scrapes here.
const perMinute = 2

// series of all instances of a state, by name and labels. What is not there any
// more is marked as Prometheus marks it.
func (s *state) series(wanted map[string]bool) map[string][]string {
	all, length := map[string][]string{}, 0
	add := func(name, value string, times int) {
		values := all[name]
		if value == "" && len(values) > 0 && values[len(values)-1] != "_" && values[len(values)-1] != "stale" {
			values, times = append(values, "stale"), times-1
		}
		if value == "" {
			value = "_"
		}
		for range length - len(values) {
			values = append(values, "_")
		}
		all[name] = append(values, slices.Repeat([]string{value}, times)...)
	}
	for _, step := range s.steps {
		times, now := step.minutes*perMinute, map[string]string{}
		for instance, scrape := range step.seen {
			where := fmt.Sprintf("instance=%q,job=%q", instance, "walstream")
			now["up{"+where+"}"] = "0"
			if scrape != "" {
				now["up{"+where+"}"] = "1"
			}
			for line := range strings.Lines(scrape) {
				name, value, ok := sample(line)
				metric, labels, _ := strings.Cut(name, "{")
				if ok && wanted[metric] {
					now[metric+"{"+where+","+labels] = value
				}
			}
		}
		for name, value := range now {
			add(name, value, times)
		}
		for name := range all {
			if _, there := now[name]; !there {
				add(name, "", times)
			}
		}
		length += times
	}
	return all
}

// sample of a line of the text format, its value in figures that promtool reads.
func sample(line string) (name, value string, ok bool) {
	at := strings.LastIndexByte(strings.TrimSpace(line), ' ')
	if at < 0 || strings.HasPrefix(line, "#") {
		return "", "", false
	}
	number, err := strconv.ParseFloat(strings.TrimSpace(line[at:]), 64)
	return line[:at], strconv.FormatFloat(number, 'f', -1, 64), err == nil
}

func hasSeries(scrape, metric string) bool {
	return strings.HasPrefix(scrape, metric) || strings.Contains(scrape, "\n"+metric)
}

// smaller limits than the rules have, where a test cannot write as much.
var smaller = map[string]string{"> 16 * 1024 * 1024 * 1024": "> 16 * 1024 * 1024"}

// writeAlerts writes DIR/alerts.tests.yml for promtool test rules: each state has to
// make its alerts fire, and every alert of the rules has to fire in one.
func writeAlerts(dir, rules string, states []state) error {
	content, err := os.ReadFile(rules)
	if err != nil {
		return err
	}
	text := string(content)
	for limit, here := range smaller {
		if strings.Count(text, limit) != 1 {
			return fmt.Errorf("%s has no one %q", rules, limit)
		}
		text = strings.Replace(text, limit, here, 1)
	}
	if err := os.WriteFile(filepath.Join(dir, "alerts.rules.yml"), []byte(text), 0o644); err != nil {
		return err
	}
	fired := map[string]bool{}
	for _, s := range states {
		for _, alert := range s.fires {
			fired[alert] = true
		}
	}
	for _, found := range regexp.MustCompile(`(?m)^\s+- alert: (\w+)$`).FindAllStringSubmatch(text, -1) {
		if !fired[found[1]] {
			return fmt.Errorf("%s fires in no state that was provoked", found[1])
		}
	}
	wanted := map[string]bool{}
	for _, name := range ruleMetrics.FindAllString(text, -1) {
		wanted[name] = true
	}
	var b strings.Builder
	b.WriteString("rule_files: [alerts.rules.yml]\nevaluation_interval: 30s\ntests:\n")
	for i := range states {
		states[i].write(&b, wanted)
	}
	return os.WriteFile(filepath.Join(dir, "alerts.tests.yml"), []byte(b.String()), 0o644)
}

func (s *state) write(b *strings.Builder, wanted map[string]bool) {
	minutes := 0
	for _, step := range s.steps {
		minutes += step.minutes
	}
	fmt.Fprintf(b, "  - name: %q\n    interval: %ds\n    input_series:\n", s.name, 60/perMinute)
	series := s.series(wanted)
	names := make([]string, 0, len(series))
	for name := range series {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		fmt.Fprintf(b, "      - series: '%s'\n        values: '%s'\n", name, strings.Join(series[name], " "))
	}
	fmt.Fprintf(b, "    promql_expr_test:\n      - expr: group by (alertname) (ALERTS{alertstate=%q})\n        eval_time: %dm\n        exp_samples:\n", "firing", minutes)
	for _, alert := range s.fires {
		fmt.Fprintf(b, "          - labels: '{alertname=%q}'\n            value: 1\n", alert)
	}
}
