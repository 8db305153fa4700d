package decode_test

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/walstream/walstream/pkg/decode"
	"github.com/walstream/walstream/pkg/decode/decodetest"
)

// A golden file holds what one major of PostgreSQL sent: for each scenario its
// statements, then each CopyData payload in hexadecimal with its decoded form,
// indented, below.
type golden struct {
	name       string
	statements []string
	payloads   [][]byte
	decoded    []string // one for each payload
}

func goldenPath(major int) string {
	return filepath.Join("testdata", fmt.Sprintf("postgres%d.golden", major))
}

// TestGoldens reads what real servers sent and compares each message's decoded
// form with the one recorded.
func TestGoldens(t *testing.T) {
	paths, err := filepath.Glob("testdata/postgres*.golden")
	if err != nil || len(paths) < 2 {
		t.Fatalf("goldens %v, error %v: want those of two majors", paths, err)
	}
	for _, path := range paths {
		for _, g := range readGolden(t, path) {
			t.Run(strings.TrimSuffix(filepath.Base(path), ".golden")+"/"+g.name, func(t *testing.T) {
				decoded := render(t, g.payloads)
				for i := range g.payloads {
					if decoded[i] != g.decoded[i] {
						t.Errorf("payload %d:\n%x\ngot  %s\nwant %s", i+1, g.payloads[i], decoded[i], g.decoded[i])
					}
				}
			})
		}
	}
}

// TestGoldenOracles holds every captured message against pglogrepl, and against
// what package decodetest writes for the same.
func TestGoldenOracles(t *testing.T) {
	eachGolden(t, func(g golden) {
		a := decode.NewAssembler()
		for _, b := range g.payloads {
			frame, err := decode.ParseFrame(b)
			if err != nil {
				t.Fatal(err)
			}
			if frame.Kind == decode.FrameKeepalive {
				requireBytes(t, g.name, b, decodetest.Keepalive(frame.LSN, frame.ServerTime, frame.ReplyRequested))
				continue
			}
			requireBytes(t, g.name, b, decodetest.XLogData(frame.LSN, frame.ServerTime, frame.Data))
			step, err := a.Next(frame.LSN, frame.Data)
			requireOracle(t, a, step, err, frame.Data)
			switch step {
			case decode.StepBegin:
				requireBytes(t, g.name, frame.Data, decodetest.Begin(a.Begin))
			case decode.StepRow:
				requireBytes(t, g.name, frame.Data, decodetest.Insert(a.Row.Relation.ID, a.Row.Values...))
			case decode.StepCommit:
				requireBytes(t, g.name, frame.Data, decodetest.Commit(a.Commit))
			}
		}
	})
}

func requireBytes(t *testing.T, name string, captured, written []byte) {
	t.Helper()
	if !bytes.Equal(captured, written) {
		t.Errorf("%s: captured\n%x\nwritten\n%x", name, captured, written)
	}
}

func eachGolden(t testing.TB, f func(golden)) {
	t.Helper()
	paths, err := filepath.Glob("testdata/postgres*.golden")
	if err != nil || len(paths) == 0 {
		t.Fatalf("goldens %v, error %v", paths, err)
	}
	for _, path := range paths {
		for _, g := range readGolden(t, path) {
			f(g)
		}
	}
}

// messages are the pgoutput messages of a golden.
func (g golden) messages() (messages [][]byte) {
	for _, b := range g.payloads {
		if b[0] == decode.FrameXLogData {
			messages = append(messages, b[25:])
		}
	}
	return messages
}

// TestGoldenFacts holds what the code above leans on against what was captured.
func TestGoldenFacts(t *testing.T) {
	seen := map[byte]int{}
	eachGolden(t, func(g golden) {
		var begun uint64
		for _, b := range g.payloads {
			if b[0] != decode.FrameXLogData {
				continue
			}
			record, end, message := binary.BigEndian.Uint64(b[1:]), binary.BigEndian.Uint64(b[9:]), b[25:]
			if record != end {
				t.Errorf("%s: XLogData of message %q names %x and %x", g.name, message[0], record, end)
			}
			switch seen[message[0]]++; message[0] {
			case decode.KindRelation, decode.KindType:
				if record != 0 {
					t.Errorf("%s: %q at LSN %x, want 0", g.name, message[0], record)
				}
			case decode.KindBegin:
				begun = binary.BigEndian.Uint64(message[1:])
			case decode.KindCommit:
				if lsn := binary.BigEndian.Uint64(message[2:]); lsn != begun {
					t.Errorf("%s: commit %x, begin said %x", g.name, lsn, begun)
				}
				if txEnd := binary.BigEndian.Uint64(message[10:]); record != txEnd {
					t.Errorf("%s: commit's XLogData names %x, its end is %x", g.name, record, txEnd)
				}
			}
		}
	})
	for _, kind := range "BCORYIUDTM" {
		if seen[byte(kind)] == 0 {
			t.Errorf("no golden has a message of kind %q", kind)
		}
	}
}

// render decodes payloads as one stream and describes each in one line.
func render(t testing.TB, payloads [][]byte) []string {
	t.Helper()
	a := decode.NewAssembler()
	lines := make([]string, len(payloads))
	for i, b := range payloads {
		frame, err := decode.ParseFrame(b)
		if err != nil {
			t.Fatalf("payload %d: %v", i+1, err)
		}
		if frame.Kind == decode.FrameKeepalive {
			lines[i] = fmt.Sprintf("keepalive %s at %s, reply requested: %v", frame.LSN, stamp(frame.ServerTime), frame.ReplyRequested)
			continue
		}
		before := a.Skipped
		step, err := a.Next(frame.LSN, frame.Data)
		if err != nil {
			t.Fatalf("payload %d: %v", i+1, err)
		}
		lines[i] = fmt.Sprintf("%s at %s: ", frame.LSN, stamp(frame.ServerTime))
		switch step {
		case decode.StepBegin:
			lines[i] += fmt.Sprintf("begin %s, xid %d, committed at %s", a.Begin.CommitLSN, a.Begin.XID, stamp(a.Begin.CommitTime))
		case decode.StepRow:
			lines[i] += fmt.Sprintf("row %s of %s.%s:%s", a.Row.Position, a.Row.Relation.Namespace, a.Row.Relation.Name, renderValues(&a.Row))
		case decode.StepCommit:
			lines[i] += fmt.Sprintf("commit %s, end %s, committed at %s", a.Commit.CommitLSN, a.Commit.EndLSN, stamp(a.Commit.CommitTime))
		default:
			lines[i] += renderOther(t, frame.Data)
			if a.Skipped != before {
				lines[i] += ", skipped and counted"
			}
		}
	}
	return lines
}

func renderValues(row *decode.Row) string {
	var b strings.Builder
	for i, v := range row.Values {
		fmt.Fprintf(&b, " %s=", row.Relation.Columns[i].Name)
		switch v.Format {
		case decode.ValueNull:
			b.WriteString("NULL")
		case decode.ValueText:
			fmt.Fprintf(&b, "%q", v.Data)
		case decode.ValueBinary:
			fmt.Fprintf(&b, "%x", v.Data)
		}
	}
	return b.String()
}

// renderOther describes, with pglogrepl's words, what the assembler takes in
// without a step.
func renderOther(t testing.TB, message []byte) string {
	m, err := pglogrepl.Parse(message)
	if err != nil {
		t.Fatal(err)
	}
	switch m := m.(type) {
	case *pglogrepl.RelationMessage:
		s := fmt.Sprintf("relation oid %d %s.%s, identity %c:", m.RelationID, m.Namespace, m.RelationName, m.ReplicaIdentity)
		for _, c := range m.Columns {
			s += fmt.Sprintf(" %s(type oid %d, modifier %d, flags %d)", c.Name, c.DataType, c.TypeModifier, c.Flags)
		}
		return s
	case *pglogrepl.TypeMessage:
		return fmt.Sprintf("type oid %d %s.%s", m.DataType, m.Namespace, m.Name)
	case *pglogrepl.OriginMessage:
		return fmt.Sprintf("origin %q, its commit %s", m.Name, m.CommitLSN)
	case *pglogrepl.LogicalDecodingMessage:
		return fmt.Sprintf("message %q: %q, transactional: %v", m.Prefix, m.Content, m.Transactional)
	}
	return strings.ToLower(m.Type().String())
}

func stamp(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05.000000") }

var (
	lsns   = regexp.MustCompile(`\b[0-9A-F]+/[0-9A-F]+\b`)
	oids   = regexp.MustCompile(`\boid \d{5,}\b`) // below 10000 they are the system's, the same everywhere
	xids   = regexp.MustCompile(`\bxid \d+\b`)
	stamps = regexp.MustCompile(`\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{6}`)
)

// normalize replaces what differs from run to run by the order of its first
// appearance, so that what is equal stays equal.
func normalize(lines []string) []string {
	var out []string
	known := map[string]string{}
	label := func(prefix string) func(string) string {
		return func(s string) string {
			if known[s] == "" {
				known[s] = fmt.Sprintf("%s%d", prefix, len(known)+1)
			}
			return known[s]
		}
	}
	for _, line := range lines {
		line = stamps.ReplaceAllString(line, "TIME")
		line = lsns.ReplaceAllStringFunc(line, label("LSN"))
		line = oids.ReplaceAllStringFunc(line, label("OID"))
		line = xids.ReplaceAllStringFunc(line, label("XID"))
		out = append(out, line)
	}
	return out
}

func writeGolden(t testing.TB, path string, head string, goldens []golden) {
	t.Helper()
	var b strings.Builder
	fmt.Fprintf(&b, "# %s\n", head)
	for _, g := range goldens {
		fmt.Fprintf(&b, "\n== %s\n", g.name)
		for _, s := range g.statements {
			fmt.Fprintf(&b, "-- %s\n", s)
		}
		decoded := render(t, g.payloads)
		for i, payload := range g.payloads {
			fmt.Fprintf(&b, "%x\n\t%s\n", payload, decoded[i])
		}
	}
	if err := os.WriteFile(path, []byte(b.String()), 0o644); err != nil {
		t.Fatal(err)
	}
}

func readGolden(t testing.TB, path string) (goldens []golden) {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(bytes.NewReader(content))
	lines.Buffer(nil, len(content))
	for lines.Scan() {
		line := lines.Text()
		if name, ok := strings.CutPrefix(line, "== "); ok {
			goldens = append(goldens, golden{name: name})
			continue
		}
		if line == "" || line[0] == '#' {
			continue
		}
		g := &goldens[len(goldens)-1]
		if statement, ok := strings.CutPrefix(line, "-- "); ok {
			g.statements = append(g.statements, statement)
			continue
		}
		if decoded, ok := strings.CutPrefix(line, "\t"); ok {
			g.decoded = append(g.decoded, decoded)
			continue
		}
		payload, err := hex.DecodeString(line)
		if err != nil {
			t.Fatalf("%s: %v in %q", path, err, line)
		}
		g.payloads = append(g.payloads, payload)
	}
	if slices.ContainsFunc(goldens, func(g golden) bool { return len(g.payloads) != len(g.decoded) }) {
		t.Fatalf("%s: payloads and decoded forms do not pair", path)
	}
	return goldens
}
