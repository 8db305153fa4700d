package testenv

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

const (
	superuser         = "postgres"
	superuserPassword = "postgres"
	serverLog         = "server.log"
)

// postmaster is a PostgreSQL that is a child process of ours.
type postmaster struct {
	bin, data string
	as        *identity
	temp      *tempDir // nil when the data is kept
	claimed   *ports
	child     *child
}

func nativePostgres(ctx context.Context, o PGOptions) (*Postgres, error) {
	install, err := findPostgres(ctx, o.Major)
	if err != nil {
		return nil, err
	}
	m := &postmaster{bin: install.bin, as: unprivileged()}
	p := &Postgres{
		Host: "127.0.0.1", Port: o.Port, User: superuser, Password: superuserPassword,
		Major: install.major, BinDir: install.bin, From: Native, server: m,
	}
	if err := m.prepare(ctx, p, o, install); err != nil {
		m.close()
		return nil, err
	}
	if err := p.Start(ctx); err != nil {
		m.close()
		return nil, err
	}
	return p, nil
}

// prepare makes the data directory and its configuration.
func (m *postmaster) prepare(ctx context.Context, p *Postgres, o PGOptions, install pgInstall) error {
	m.data = o.DataDir
	if m.data == "" {
		temp, err := newTempDir(ctx, fmt.Sprintf("pg%d", install.major), m.as)
		if err != nil {
			return err
		}
		m.temp, m.data = temp, filepath.Join(temp.path, "data")
	}
	data, err := filepath.Abs(m.data)
	if err != nil {
		return err
	}
	m.data, p.DataDir = data, data
	if err := os.MkdirAll(filepath.Dir(data), 0o755); err != nil {
		return err
	}
	if err := m.as.reach(data); err != nil {
		return err
	}
	if err := m.fill(ctx, install); err != nil {
		return err
	}
	if p.Port == 0 {
		if m.claimed, err = claimPorts(1); err != nil {
			return err
		}
		p.Port = m.claimed.numbers[0]
	}
	if len(data) < 80 { // a socket's path is limited to 107 bytes
		p.SocketDir = data
	}
	return m.configure(p, o)
}

// fill puts a fresh cluster into an empty data directory; a full one must be of
// the same major.
func (m *postmaster) fill(ctx context.Context, install pgInstall) error {
	if text, err := os.ReadFile(filepath.Join(m.data, "PG_VERSION")); err == nil {
		if major := strings.TrimSpace(string(text)); major != fmt.Sprint(install.major) {
			return fmt.Errorf("%s holds data of PostgreSQL %s, not %d", m.data, major, install.major)
		}
		if m.as == nil {
			return nil
		}
		return filepath.WalkDir(m.data, func(path string, _ os.DirEntry, err error) error {
			if err != nil {
				return err
			}
			return m.as.own(path)
		})
	}
	template, err := pgTemplate(ctx, install)
	if err != nil {
		return err
	}
	return copyTree(template, m.data, m.as)
}

// configure writes postgresql.conf and pg_hba.conf whole. ALTER SYSTEM, which
// writes another file, still has the last word.
func (m *postmaster) configure(p *Postgres, o PGOptions) error {
	settings := pgSettings(o)
	settings["listen_addresses"] = p.Host
	settings["port"] = fmt.Sprint(p.Port)
	settings["unix_socket_directories"] = p.SocketDir
	var conf strings.Builder
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		value := strings.NewReplacer(`\`, `\\`, `'`, `''`).Replace(settings[name])
		fmt.Fprintf(&conf, "%s = '%s'\n", name, value)
	}
	hba := slices.Concat(o.HBA, []string{
		"local all all trust", // the socket lies in a directory that is ours alone
		"local replication all trust",
		"host all all 127.0.0.1/32 scram-sha-256",
		"host replication all 127.0.0.1/32 scram-sha-256",
	})
	if err := m.write("postgresql.conf", conf.String()); err != nil {
		return err
	}
	return m.write("pg_hba.conf", strings.Join(hba, "\n")+"\n")
}

// pgSettings are the settings of any test server.
func pgSettings(o PGOptions) map[string]string {
	settings := map[string]string{
		"wal_level":             "logical",
		"max_wal_senders":       "20",
		"max_replication_slots": "20",
		"fsync":                 "off",
		"timezone":              "UTC",
		"log_timezone":          "UTC",
		"log_line_prefix":       "%m [%p] %q%a ",
	}
	if o.Durable {
		settings["fsync"] = "on"
	}
	maps.Copy(settings, o.Params)
	return settings
}

func (m *postmaster) write(name, text string) error {
	path := filepath.Join(m.data, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		return err
	}
	return m.as.own(path)
}

func (m *postmaster) start(context.Context) error {
	log, err := os.OpenFile(filepath.Join(m.data, serverLog), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	if err := m.as.own(log.Name()); err != nil {
		return err
	}
	cmd := exec.Command(program(m.bin, "postgres"), "-D", m.data)
	cmd.Dir = m.data
	cmd.Env = pgEnvironment()
	cmd.Stdout, cmd.Stderr = log, log
	// SIGQUIT: a fast shutdown would wait for whoever reads a slot.
	confine(cmd, m.as, syscall.SIGQUIT)
	m.child, err = startChild(cmd)
	return err
}

// pgEnvironment is ours without PG* variables and locale: both change what a
// server does.
func pgEnvironment() []string {
	env := slices.DeleteFunc(os.Environ(), func(variable string) bool {
		return strings.HasPrefix(variable, "PG") || strings.HasPrefix(variable, "LC_") || strings.HasPrefix(variable, "LANG")
	})
	return append(env, "LC_ALL=C")
}

// stopSignals are the postmaster's three ways to stop.
var stopSignals = map[string]os.Signal{"smart": syscall.SIGTERM, "fast": syscall.SIGINT, "immediate": syscall.SIGQUIT}

func (m *postmaster) stop(mode string, wait time.Duration) error {
	sig, ok := stopSignals[mode]
	if !ok {
		return fmt.Errorf("no such mode: smart, fast or immediate")
	}
	if !m.running() {
		return nil
	}
	return m.child.signal(sig, wait)
}

func (m *postmaster) kill() error {
	if !m.running() {
		return nil
	}
	if err := killFamily(m.child.pid()); err != nil {
		return err
	}
	<-m.child.done
	return nil
}

func (m *postmaster) pid() int      { return m.child.pid() }
func (m *postmaster) running() bool { return m.child != nil && m.child.running() }
func (m *postmaster) log() string   { return tail(filepath.Join(m.data, serverLog)) }

// close stops the server, by force if need be: kept data is left in order,
// temporary data is not worth the wait.
func (m *postmaster) close() {
	mode := "immediate"
	if m.temp == nil {
		mode = "fast"
	}
	if m.stop(mode, 10*time.Second) != nil {
		_ = m.kill()
	}
	m.temp.remove()
	m.claimed.release()
}
