package check

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
	"go.yaml.in/yaml/v4"
)

// expression of a rule or a panel.
type expression struct{ where, text string }

type ruleFile struct {
	Groups []struct {
		Rules []struct {
			Alert       string            `yaml:"alert"`
			Expr        string            `yaml:"expr"`
			Labels      map[string]string `yaml:"labels"`
			Annotations map[string]string `yaml:"annotations"`
		} `yaml:"rules"`
	} `yaml:"groups"`
}

type dashboard struct {
	Templating struct {
		List []struct {
			Name       string `json:"name"`
			Type       string `json:"type"`
			Definition string `json:"definition"`
		} `json:"list"`
	} `json:"templating"`
	Panels []struct {
		ID      int    `json:"id"`
		Type    string `json:"type"`
		Title   string `json:"title"`
		GridPos struct{ X, Y, W, H int }
		Targets []struct {
			Expr string `json:"expr"`
		} `json:"targets"`
	} `json:"panels"`
}

// scrape is what the real binary showed: the series of each name.
type scrape map[string][]labels.Labels

func read(t *testing.T, path string) []byte {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

// live is the output of deploy/live.
func live(t *testing.T, name string) string {
	t.Helper()
	dir := os.Getenv("WALSTREAM_MONITORING")
	if dir == "" {
		t.Skip("skipped: no scrape to hold this against; run make monitoring-check")
	}
	return string(read(t, filepath.Join(dir, name)))
}

func scraped(t *testing.T) scrape {
	t.Helper()
	found, p := scrape{}, parser.NewParser(parser.Options{})
	for _, file := range []string{"streaming.txt", "standby.txt", "snapshot.txt"} {
		for line := range strings.Lines(live(t, file)) {
			if strings.HasPrefix(line, "#") {
				continue
			}
			series, err := p.ParseMetric(line[:strings.LastIndexByte(line, ' ')])
			if err != nil {
				t.Fatalf("%s: %s: %v", file, line, err)
			}
			found[series.Get(labels.MetricName)] = append(found[series.Get(labels.MetricName)], series)
		}
	}
	// Prometheus's own, and what it adds to every series.
	found["up"] = []labels.Labels{labels.FromStrings(labels.MetricName, "up")}
	if len(found["walstream_state"]) == 0 {
		t.Fatal("the scrape has no walstream_state")
	}
	return found
}

// added are labels that a scrape does not show.
var added = []string{"instance", "job"}

func (s scrape) hasLabel(name string) bool {
	if slices.Contains(added, name) || name == "le" {
		return true
	}
	for _, series := range s {
		for _, labels := range series {
			if labels.Has(name) {
				return true
			}
		}
	}
	return false
}

func rules(t *testing.T) ruleFile {
	t.Helper()
	var f ruleFile
	if err := yaml.Unmarshal(read(t, "../prometheus/walstream.rules.yml"), &f); err != nil {
		t.Fatal(err)
	}
	return f
}

func grafana(t *testing.T) dashboard {
	t.Helper()
	var d dashboard
	if err := json.Unmarshal(read(t, "../grafana/walstream.json"), &d); err != nil {
		t.Fatal(err)
	}
	return d
}

// Grafana's variables, as they are when everything is chosen.
var variables = strings.NewReplacer("$__rate_interval", "5m", "$pipeline", ".*", "$instance", ".*")

var labelValues = regexp.MustCompile(`^label_values\((.+), (\w+)\)$`)

func expressions(t *testing.T) (all []expression) {
	t.Helper()
	for _, group := range rules(t).Groups {
		for _, rule := range group.Rules {
			all = append(all, expression{"alert " + rule.Alert, rule.Expr})
		}
	}
	d := grafana(t)
	for _, panel := range d.Panels {
		if panel.Type != "row" && len(panel.Targets) == 0 {
			t.Errorf("panel %s shows nothing", panel.Title)
		}
		for _, target := range panel.Targets {
			all = append(all, expression{"panel " + panel.Title, variables.Replace(target.Expr)})
		}
	}
	for _, variable := range d.Templating.List {
		if variable.Type != "query" {
			continue
		}
		parts := labelValues.FindStringSubmatch(variables.Replace(variable.Definition))
		if parts == nil {
			t.Fatalf("variable %s: %s", variable.Name, variable.Definition)
		}
		all = append(all, expression{"variable " + variable.Name, fmt.Sprintf("count by (%s) (%s)", parts[2], parts[1])})
	}
	if len(all) < 30 {
		t.Fatalf("only %d expressions were found", len(all))
	}
	return all
}

// faults of an expression: it does not parse, or selects what no scrape has.
func faults(text string, found scrape) (faults []string) {
	expr, err := parser.NewParser(parser.Options{}).ParseExpr(text)
	if err != nil {
		return []string{err.Error()}
	}
	grouped := func(names []string) {
		for _, name := range names {
			if !found.hasLabel(name) {
				faults = append(faults, "no series has a label "+name)
			}
		}
	}
	parser.Inspect(expr, func(node parser.Node, _ []parser.Node) error {
		switch n := node.(type) {
		case *parser.AggregateExpr:
			grouped(n.Grouping)
		case *parser.BinaryExpr:
			if n.VectorMatching != nil {
				grouped(n.VectorMatching.MatchingLabels)
			}
		case *parser.VectorSelector:
			if !slices.ContainsFunc(found[n.Name], func(series labels.Labels) bool { return selects(n, series) }) {
				faults = append(faults, "the scrape has nothing for "+n.String())
			}
		}
		return nil
	})
	return faults
}

func selects(n *parser.VectorSelector, series labels.Labels) bool {
	for _, m := range n.LabelMatchers {
		if !slices.Contains(added, m.Name) && !m.Matches(series.Get(m.Name)) {
			return false
		}
	}
	return true
}

func TestExpressionsSelectWhatThereIs(t *testing.T) {
	found := scraped(t)
	for _, e := range expressions(t) {
		for _, fault := range faults(e.text, found) {
			t.Errorf("%s: %s", e.where, fault)
		}
	}
}

// TestFaults shows that the check above can fail.
func TestFaults(t *testing.T) {
	found := scrape{"a": {labels.FromStrings(labels.MetricName, "a", "stage", "published")}}
	for _, bad := range []string{`a{`, `b`, `rate(b[5m])`, `a{stage="publishd"}`, `sum by (stge) (a)`, `a * on (x) a`} {
		if len(faults(bad, found)) == 0 {
			t.Errorf("%s passes", bad)
		}
	}
	if f := faults(`sum by (stage, instance) (rate(a{stage=~"pub.*", job="x"}[5m]))`, found); len(f) > 0 {
		t.Error(f)
	}
}

func TestPanelsDoNotOverlap(t *testing.T) {
	taken, ids := map[[2]int]string{}, map[int]bool{}
	for _, p := range grafana(t).Panels {
		if ids[p.ID] {
			t.Errorf("two panels have the id %d", p.ID)
		}
		ids[p.ID] = true
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				if other := taken[[2]int{x, y}]; other != "" || x >= 24 {
					t.Fatalf("panel %q lies over %q, or outside", p.Title, other)
				}
				taken[[2]int{x, y}] = p.Title
			}
		}
	}
}

const runbooks = "https://github.com/walstream/walstream/blob/main/docs/runbooks/"

func TestEveryAlertHasItsPageAndItsTest(t *testing.T) {
	var tests struct {
		Tests []struct {
			Alerts []struct {
				Name  string `yaml:"alertname"`
				Fires []any  `yaml:"exp_alerts"`
			} `yaml:"alert_rule_test"`
		} `yaml:"tests"`
	}
	if err := yaml.Unmarshal(read(t, "../prometheus/walstream.tests.yml"), &tests); err != nil {
		t.Fatal(err)
	}
	fires, silent := map[string]bool{}, map[string]bool{}
	for _, test := range tests.Tests {
		for _, alert := range test.Alerts {
			fires[alert.Name] = fires[alert.Name] || len(alert.Fires) > 0
			silent[alert.Name] = silent[alert.Name] || len(alert.Fires) == 0
		}
	}
	pages, err := filepath.Glob("../../docs/runbooks/Walstream*.md")
	if err != nil {
		t.Fatal(err)
	}
	index := string(read(t, "../../docs/runbooks/README.md"))
	var alerts []string
	for _, rule := range rules(t).Groups[0].Rules {
		alerts = append(alerts, "../../docs/runbooks/"+rule.Alert+".md")
		if !fires[rule.Alert] || !silent[rule.Alert] {
			t.Errorf("%s: no test in which it fires, or none in which it does not", rule.Alert)
		}
		if rule.Annotations["runbook_url"] != runbooks+rule.Alert+".md" || rule.Annotations["summary"] == "" || rule.Annotations["description"] == "" {
			t.Errorf("%s: annotations %v", rule.Alert, rule.Annotations)
		}
		if row := fmt.Sprintf("| [%s](%[1]s.md) | %s |", rule.Alert, rule.Labels["severity"]); !strings.Contains(index, row) {
			t.Errorf("%s: the index of the runbooks has no row %q", rule.Alert, row)
		}
	}
	slices.Sort(alerts)
	if slices.Sort(pages); !slices.Equal(alerts, pages) {
		t.Errorf("alerts want the pages\n%v\nthere are\n%v", alerts, pages)
	}
	for _, page := range pages {
		for _, part := range []string{"# " + strings.TrimSuffix(filepath.Base(page), ".md") + "\n", "## What it means", "## Causes", "## What to do"} {
			if !strings.Contains(string(read(t, page)), part) {
				t.Errorf("%s has no %q", page, part)
			}
		}
	}
}

var (
	metric = regexp.MustCompile(`\bwalstream_[a-z_]+[a-z]`)
	suffix = regexp.MustCompile(`_(bucket|sum|count)$`)
)

// documents for whoever is on call.
func documents(t *testing.T) map[string]string {
	t.Helper()
	pages, err := filepath.Glob("../../docs/runbooks/*.md")
	if err != nil {
		t.Fatal(err)
	}
	texts := map[string]string{}
	for _, page := range append(pages, "../../docs/metrics.md", "../../docs/status.md", "../prometheus/walstream.rules.yml") {
		texts[page] = string(read(t, page))
	}
	return texts
}

func TestDocumentsNameMetricsThatExist(t *testing.T) {
	found := scraped(t)
	for page, text := range documents(t) {
		for _, name := range metric.FindAllString(text, -1) {
			name = suffix.ReplaceAllString(name, "")
			if len(found[name]) == 0 && len(found[name+"_count"]) == 0 {
				t.Errorf("%s: there is no metric %s", page, name)
			}
		}
	}
}
