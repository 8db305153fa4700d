package ops

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/walstream/walstream/pkg/pipeline"
	"github.com/walstream/walstream/pkg/sink"
)

var update = flag.Bool("update", false, "rewrite the table of docs/metrics.md")

// gather is a scrape of a pipeline.
func gather(t *testing.T, p *pipeline.Progress, more ...prometheus.Collector) map[string]*dto.MetricFamily {
	t.Helper()
	cfg := testConfig(p)
	m := NewMetrics(cfg, more...)
	m.Observe(3 * time.Millisecond)
	list, err := m.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	families := map[string]*dto.MetricFamily{}
	for _, f := range list {
		families[f.GetName()] = f
	}
	return families
}

// kafkaMetrics has one series of everything.
func kafkaMetrics() *sink.ClientMetrics {
	m, broker := sink.NewClientMetrics(), kgo.BrokerMetadata{NodeID: 1}
	m.OnBrokerConnect(broker, 0, nil, errors.New("refused"))
	m.OnBrokerE2E(broker, 0, kgo.BrokerE2E{TimeToWrite: time.Millisecond})
	m.OnProduceBatchWritten(broker, "deposits", 0, kgo.ProduceBatchMetrics{NumRecords: 3, UncompressedBytes: 200, CompressedBytes: 100})
	return m
}

const docs = "../../docs/metrics.md"

// TestDocsHaveEveryMetric with its HELP text, which is the one place to write
// what it means.
func TestDocsHaveEveryMetric(t *testing.T) {
	p := streaming()
	p.Snapshot = &pipeline.SnapshotProgress{Estimate: 1}
	p.Rewind = &pipeline.RewindProgress{Kept: true, At: time.Now(), Since: time.Now()}
	families := gather(t, p, kafkaMetrics())
	var names []string
	for name := range families {
		if strings.HasPrefix(name, "walstream_") {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	var table strings.Builder
	table.WriteString("| metric | type | meaning, and what to do |\n|---|---|---|\n")
	for _, name := range names {
		var labels []string
		for _, l := range families[name].Metric[0].Label {
			if l.GetName() != "pipeline" {
				labels = append(labels, l.GetName())
			}
		}
		shown := name
		if len(labels) > 0 {
			shown += "{" + strings.Join(labels, ",") + "}"
		}
		fmt.Fprintf(&table, "| `%s` | %s | %s |\n", shown, strings.ToLower(families[name].GetType().String()), families[name].GetHelp())
	}
	content, err := os.ReadFile(docs)
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(content), "-update -->\n")
	written, _, closed := strings.Cut(rest, "<!-- /metrics -->")
	if !ok || !closed {
		t.Fatalf("%s has lost its marks", docs)
	}
	if *update {
		text := strings.Replace(string(content), "-update -->\n"+written, "-update -->\n"+table.String(), 1)
		if err := os.WriteFile(docs, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if written != table.String() {
		t.Errorf("the table of %s is not what the binary says; go test ./internal/ops -update writes it", docs)
	}
}

// TestDocsNameOnlyMetrics: what the rest of the page names is there, Debezium's
// table above all.
func TestDocsNameOnlyMetrics(t *testing.T) {
	p := streaming()
	p.Snapshot = &pipeline.SnapshotProgress{Estimate: 1}
	p.Rewind = &pipeline.RewindProgress{Kept: true, At: time.Now(), Since: time.Now()}
	families := gather(t, p, kafkaMetrics())
	content, err := os.ReadFile(docs)
	if err != nil {
		t.Fatal(err)
	}
	elsewhere := []string{"walstream_trace_spans_total"} // while traces are on: internal/otlp
	for _, name := range regexp.MustCompile(`walstream_[a-z0-9_]+`).FindAllString(string(content), -1) {
		if families[name] == nil && !slices.Contains(elsewhere, name) {
			t.Errorf("%s names %s, which there is not", docs, name)
		}
	}
}

// Every histogram has native buckets beside the classic ones, and every series few
// labels: brokers and topics are the only ones that grow.
func TestHistogramsAreBoth(t *testing.T) {
	histograms := 0
	for name, family := range gather(t, streaming(), kafkaMetrics()) {
		if !strings.HasPrefix(name, "walstream_") {
			continue
		}
		for _, m := range family.Metric {
			if len(m.Label) > 3 {
				t.Errorf("%s has %d labels", name, len(m.Label))
			}
			if h := m.Histogram; h != nil {
				histograms++
				if len(h.Bucket) < 10 || h.Schema == nil || h.GetZeroThreshold() == 0 {
					t.Errorf("%s: %d classic buckets, native schema %v", name, len(h.Bucket), h.Schema)
				}
			}
		}
	}
	if histograms < 2 {
		t.Errorf("%d histograms were looked at", histograms)
	}
}

// TestHelpSaysMore than the name: a sentence, with its end.
func TestHelpSaysMore(t *testing.T) {
	for name, f := range gather(t, streaming(), kafkaMetrics()) {
		if strings.HasPrefix(name, "walstream_") && (len(f.GetHelp()) < 20 || !strings.HasSuffix(f.GetHelp(), ".")) {
			t.Errorf("%s: %q", name, f.GetHelp())
		}
	}
}

// TestRestartReasonsAreThePipelines holds the list against the table it copies.
func TestRestartReasonsAreThePipelines(t *testing.T) {
	source, err := os.ReadFile("../../pkg/pipeline/classify.go")
	if err != nil {
		t.Fatal(err)
	}
	var reasons []string
	for _, m := range regexp.MustCompile(`Class\{(?:Retry|Wait), "([a-z-]+)"\}`).FindAllStringSubmatch(string(source), -1) {
		reasons = append(reasons, m[1])
	}
	if len(reasons) == 0 {
		t.Fatal("no reasons were found")
	}
	slices.Sort(reasons)
	ours := slices.Sorted(slices.Values(restartReasons))
	if !slices.Equal(slices.Compact(reasons), ours) {
		t.Errorf("the pipeline restarts for %v, metrics begin with %v", reasons, ours)
	}
	counted := streaming()
	counted.Restarts = map[string]uint64{"kafka": 7}
	for _, m := range gather(t, counted)["walstream_restarts_total"].Metric {
		want := 0.0
		if m.Label[1].GetValue() == "kafka" {
			want = 7
		}
		if m.Counter.GetValue() != want {
			t.Errorf("%v", m)
		}
	}
}

func TestLatencyIsNativeAndClassic(t *testing.T) {
	h := gather(t, streaming())["walstream_commit_to_ack_seconds"].Metric[0].Histogram
	if h.GetSampleCount() != 1 || len(h.Bucket) != 18 || len(h.PositiveSpan) == 0 {
		t.Errorf("%v", h)
	}
}
