package layout

import (
	"encoding/json"
	"errors"
	"go/parser"
	"go/token"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/walstream/walstream/"

// pkg is what go list says of a package.
type pkg struct {
	ImportPath string
	Imports    []string
	Standard   bool
}

// goList runs go list in the module's root; tests are not among the imports.
func goList(t *testing.T, args ...string) []pkg {
	t.Helper()
	cmd := exec.Command("go", append([]string{"list", "-json=ImportPath,Imports,Standard"}, args...)...)
	cmd.Dir = "../.."
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list %v: %v\n%s", args, err, stderr.String())
	}
	var packages []pkg
	for decoder := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p pkg
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			return packages
		} else if err != nil {
			t.Fatalf("read go list: %v", err)
		}
		packages = append(packages, p)
	}
}

// layers, each with the packages of ours it may import; packages below a layer
// belong to it, and may import the layer.
var layers = map[string][]string{
	"pkg/decode":      {},
	"pkg/repeat":      {},
	"pkg/history":     {},
	"pkg/checkpoint":  {"pkg/decode", "pkg/history"},
	"pkg/outbox":      {"pkg/decode"},
	"pkg/replication": {"pkg/decode"},
	"pkg/sink":        {"pkg/outbox", "pkg/checkpoint", "pkg/history", "pkg/decode", "pkg/repeat"},
	// Beside replication, which opens its connection: the table instead of the stream.
	"pkg/snapshot": {"pkg/replication", "pkg/checkpoint", "pkg/decode"},
	// Which rows are in no topic: the table beside what the topics hold.
	"pkg/recovery": {"pkg/sink", "pkg/snapshot", "pkg/replication", "pkg/outbox", "pkg/checkpoint", "pkg/decode"},
	// The only layer that knows both ends: its loop and start order join them.
	"pkg/pipeline": {"pkg/recovery", "pkg/sink", "pkg/snapshot", "pkg/replication", "pkg/outbox", "pkg/checkpoint", "pkg/history", "pkg/decode", "pkg/repeat"},
	// Beside it: reads both ends, and nothing below imports it.
	"pkg/prune": {"pkg/sink", "pkg/replication", "pkg/outbox", "pkg/checkpoint", "pkg/repeat"},
	// Above it: a pipeline of its own, for rows that were published before.
	"pkg/replay": {"pkg/pipeline", "pkg/sink", "pkg/replication", "pkg/outbox", "pkg/checkpoint", "pkg/history"},
	"pkg/audit":  {"pkg/sink", "pkg/replication", "pkg/outbox", "pkg/checkpoint", "pkg/decode"},
}

// pureFiles decide; what they need of the two ends they declare as interfaces.
// They have no I/O and start no clock.
var pureFiles = []string{
	"pkg/pipeline/core.go", "pkg/pipeline/pacer.go",
	"pkg/sink/schedule/schedule.go", "pkg/sink/schedule/transaction.go", "pkg/sink/schedule/fifo.go",
}

// owners of what only one layer may name.
var owners = []struct{ imported, owner, why string }{
	{"github.com/twmb/franz-go", "pkg/sink", "kgo is named only in sink"},
	{"github.com/jackc/pgx/v5/pgconn", "pkg/replication", "connections are opened only in replication"},
	{"github.com/jackc/pgx/v5/pgproto3", "pkg/replication", "the wire is replication's"},
}

func TestImportsPointDown(t *testing.T) {
	seen := map[string]bool{}
	for _, p := range goList(t, "./pkg/...") {
		path := strings.TrimPrefix(p.ImportPath, module)
		layer := layerOf(path)
		if layer == "" {
			t.Errorf("%s belongs to no layer: add it to this test and to doc.go", path)
			continue
		}
		seen[layer] = true
		for _, fault := range faults(layer, p.Imports) {
			t.Errorf("%s: %s", path, fault)
		}
	}
	for layer := range layers {
		if !seen[layer] {
			t.Errorf("no package of layer %s was found", layer)
		}
	}
}

func TestPureFilesKnowNeitherEnd(t *testing.T) {
	for _, path := range pureFiles {
		file, err := parser.ParseFile(token.NewFileSet(), "../../"+path, nil, parser.ImportsOnly)
		if err != nil {
			t.Fatal(err)
		}
		for _, spec := range file.Imports {
			imported := strings.Trim(spec.Path.Value, `"`)
			switch strings.TrimPrefix(imported, module) {
			case "pkg/sink", "pkg/snapshot", "pkg/replication", "net", "os", "io", "context", "math/rand", "math/rand/v2":
				t.Errorf("%s must not import %s", path, imported)
			}
		}
	}
}

func layerOf(path string) string {
	for layer := range layers {
		if path == layer || strings.HasPrefix(path, layer+"/") {
			return layer
		}
	}
	return ""
}

func faults(layer string, imports []string) (faults []string) {
	for _, imported := range imports {
		if own, ok := strings.CutPrefix(imported, module); ok {
			if target := layerOf(own); target != layer && !slices.Contains(layers[layer], target) {
				faults = append(faults, "must not import "+own)
			}
			continue
		}
		for _, o := range owners {
			if layer != o.owner && (imported == o.imported || strings.HasPrefix(imported, o.imported+"/")) {
				faults = append(faults, "must not import "+imported+": "+o.why)
			}
		}
		if layer == "pkg/decode" && strings.Contains(imported, ".") && imported != "github.com/jackc/pglogrepl" {
			faults = append(faults, "must not import "+imported+": decode has the standard library and pglogrepl.LSN")
		}
	}
	return faults
}

// TestFaults shows that the rules above can be broken at all.
func TestFaults(t *testing.T) {
	for _, c := range []struct{ layer, imported string }{
		{"pkg/decode", module + "pkg/checkpoint"},
		{"pkg/decode", "github.com/rs/zerolog"},
		{"pkg/checkpoint", module + "pkg/outbox"},
		{"pkg/outbox", module + "internal/testenv"},
		{"pkg/sink", module + "pkg/pipeline"},
		{"pkg/replication", module + "pkg/sink"},
		{"pkg/pipeline", "github.com/twmb/franz-go/pkg/kgo"},
		{"pkg/sink", "github.com/jackc/pgx/v5/pgconn"},
	} {
		if len(faults(c.layer, []string{c.imported})) == 0 {
			t.Errorf("%s may import %s", c.layer, c.imported)
		}
	}
	if f := faults("pkg/sink", []string{"fmt", module + "pkg/outbox", "github.com/twmb/franz-go/pkg/kgo", module + "pkg/sink/sinktest"}); len(f) > 0 {
		t.Errorf("sink: %v", f)
	}
}

func TestBinaryHasNoTestServers(t *testing.T) {
	forbidden := []string{"kfake", "embedded-postgres", "dockertest", "internal/testenv", "toxiproxy"}
	found := false
	for _, p := range goList(t, "-deps", "./cmd/walstream") {
		found = found || p.ImportPath == "github.com/alecthomas/kong"
		for _, f := range forbidden {
			if strings.Contains(p.ImportPath, f) {
				t.Errorf("walstream contains %s", p.ImportPath)
			}
		}
	}
	if !found {
		t.Error("go list -deps did not list the binary's packages")
	}
}
