package main

import (
	"bufio"
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/walstream/walstream/internal/connect"
	"github.com/walstream/walstream/internal/testenv"
)

//go:embed java
var javaFiles embed.FS

// debezium is the Java side: see java/Parity.java for what is said over its pipes.
type debezium struct {
	cmd        *exec.Cmd
	in         io.WriteCloser
	out        *bufio.Scanner
	connectors []map[string]string // options; a connector for each set of them
}

// javaSide is the compiled program.
type javaSide struct {
	java  string
	flags []string // class path included; the main class follows
}

// compileJava puts the program into dir. The jars come from Maven, once.
func compileJava(ctx context.Context, dir string) (*javaSide, error) {
	javac, err := exec.LookPath(javaTool("javac"))
	if err != nil {
		return nil, fmt.Errorf("no javac on the PATH or in JAVA_HOME: the Java side wants a JDK of 17 or newer, a JRE is not enough: %w", err)
	}
	jars, err := connect.Jars(ctx)
	if err != nil {
		return nil, err
	}
	if err := os.CopyFS(dir, javaFiles); err != nil {
		return nil, err
	}
	sources, err := fs.Glob(javaFiles, "java/*.java")
	if err != nil {
		return nil, err
	}
	libraries := filepath.Join(jars, "*")
	compile := exec.CommandContext(ctx, javac, append([]string{"-d", "classes", "-cp", libraries}, sources...)...)
	compile.Dir = dir
	if out, err := compile.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%s: %w\n%s", compile, err, out)
	}
	return &javaSide{javaTool("java"), []string{
		"-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
		"-cp", filepath.Join(dir, "classes") + string(os.PathListSeparator) + libraries,
	}}, nil
}

// command runs the program itself.
func (s *javaSide) command(ctx context.Context, args ...string) *exec.Cmd {
	return exec.CommandContext(ctx, s.java, slices.Concat(s.flags, []string{"Parity"}, args)...)
}

func javaTool(name string) string {
	if home := os.Getenv("JAVA_HOME"); home != "" {
		return filepath.Join(home, "bin", name)
	}
	return name
}

// startDebezium starts a connector for each set of connector options in the
// corpus. It does not wait for them.
func startDebezium(ctx context.Context, side *javaSide, pg *testenv.Postgres, groups []*group, log io.Writer) (*debezium, error) {
	d := &debezium{cmd: side.command(ctx)}
	for _, g := range groups {
		if d.connector(g) < 0 {
			options := g.Connector
			if options == nil {
				options = map[string]string{}
			}
			d.connectors = append(d.connectors, options)
		}
	}
	d.cmd.Stderr = log
	var err error
	if d.in, err = d.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := d.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	d.out = bufio.NewScanner(out)
	d.out.Buffer(nil, 64<<20)
	if err := d.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start Java: %w", err)
	}
	return d, d.say(map[string]any{
		"postgres": map[string]string{
			"host": pg.Host, "port": strconv.Itoa(pg.Port), "user": pg.User, "password": pg.Password,
			"database": "postgres", "publication": publication,
		},
		"connectors": d.connectors,
	})
}

// connector is the number of the one with the group's options; -1 is none.
func (d *debezium) connector(g *group) int {
	return slices.IndexFunc(d.connectors, func(o map[string]string) bool { return maps.Equal(o, g.Connector) })
}

func (d *debezium) say(what any) error {
	line, err := json.Marshal(what)
	if err == nil {
		_, err = d.in.Write(append(line, '\n'))
	}
	if err != nil {
		return fmt.Errorf("write to the Java side: %w", err)
	}
	return nil
}

func (d *debezium) hear(into any) error {
	if !d.out.Scan() {
		return fmt.Errorf("the Java side ended: %w", errors.Join(d.out.Err(), io.ErrUnexpectedEOF))
	}
	return json.Unmarshal(d.out.Bytes(), into)
}

// awaitStreaming waits until every connector reads what is written.
func (d *debezium) awaitStreaming() error {
	var hello struct{ Ready bool }
	if err := d.hear(&hello); err != nil {
		return err
	}
	if !hello.Ready {
		return errors.New("the Java side is not ready")
	}
	return nil
}

// answers asks for what becomes of the rows, and ends the program.
func (d *debezium) answers(samples []*sample) (map[string]*answer, error) {
	for _, s := range samples {
		if err := d.say(map[string]any{
			"case": s.name, "group": s.group.Name, "connector": d.connector(s.group), "xid": s.xid,
			"router": orEmpty(s.group.Router), "converters": s.group.workerOptions(), "partitions": partitions,
		}); err != nil {
			return nil, err
		}
	}
	if err := d.in.Close(); err != nil {
		return nil, err
	}
	answers := map[string]*answer{}
	for range samples {
		a := &answer{}
		if err := d.hear(a); err != nil {
			return nil, err
		}
		answers[a.Case] = a
	}
	return answers, d.cmd.Wait()
}

func orEmpty(m map[string]string) map[string]string {
	if m == nil {
		return map[string]string{}
	}
	return m
}

// close ends the program if it still runs.
func (d *debezium) close() {
	_ = d.cmd.Process.Kill() // it has ended, or is to
	_ = d.cmd.Wait()
}

// printPartitions writes what Kafka's own producer makes of keys.
func printPartitions(ctx context.Context, out io.Writer) error {
	dir, err := os.MkdirTemp("", "walstream-parity-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	side, err := compileJava(ctx, dir)
	if err != nil {
		return err
	}
	cmd := side.command(ctx, "partitions")
	cmd.Stdout, cmd.Stderr = out, os.Stderr
	return cmd.Run()
}
