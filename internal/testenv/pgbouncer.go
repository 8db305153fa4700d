package testenv

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// NewPgBouncer starts a pooler in front of a server and returns the address that
// clients give for it. It ends with the test. settings are lines of its
// configuration. Without the program, found here or in Debian's package, the test is
// skipped: it proves a diagnosis, and a stand-in is tested elsewhere.
func NewPgBouncer(t testing.TB, pg *Postgres, settings ...string) (host string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	program, libraries, err := findPgBouncer(ctx)
	if err != nil {
		t.Skipf("skipped: no PgBouncer: %v", err)
	}
	as := unprivileged() // it refuses root, too
	temp, err := newTempDir(ctx, "pgbouncer", as)
	if err != nil {
		t.Fatal(err)
	}
	claimed, err := claimPorts(1)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(claimed.release)
	host = address(claimed.numbers[0])
	config := fmt.Sprintf("[databases]\n* = host=%s port=%d user=%s password=%s\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = %d\n"+
		"unix_socket_dir =\nauth_type = any\n%s\n", pg.Host, pg.Port, pg.User, pg.Password, claimed.numbers[0], strings.Join(settings, "\n"))
	path := filepath.Join(temp.path, "pgbouncer.ini")
	if err := os.WriteFile(path, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := as.own(path); err != nil {
		t.Fatal(err)
	}
	log, err := os.Create(filepath.Join(temp.path, "log"))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, path)
	cmd.Env = append(os.Environ(), "LD_LIBRARY_PATH="+libraries)
	cmd.Stdout, cmd.Stderr = log, log
	confine(cmd, as, syscall.SIGKILL)
	child, err := startChild(cmd)
	_ = log.Close() // the child has its own
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("PgBouncer: %s", tail(log.Name()))
		}
		_ = child.signal(os.Kill, 5*time.Second)
		temp.remove()
	})
	for {
		conn, err := net.DialTimeout("tcp", host, time.Second)
		if err == nil {
			_ = conn.Close()
			return host
		}
		if ctx.Err() != nil || !child.running() {
			t.Fatalf("PgBouncer does not come up: %s", tail(log.Name()))
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// findPgBouncer takes the one of this machine, or unpacks Debian's package, with the
// one library of it that is rarely there, into the cache.
func findPgBouncer(ctx context.Context) (program, libraries string, err error) {
	if program, err = exec.LookPath("pgbouncer"); err == nil {
		return program, "", nil
	}
	if _, err := exec.LookPath("dpkg"); err != nil {
		return "", "", errors.New("neither the program nor dpkg is here")
	}
	dir, err := cached(ctx, "pgbouncer", func(dir string) error {
		fetch := exec.CommandContext(ctx, "sh", "-ec", `
			get() { apt-get -o APT::Sandbox::User=root download -qq pgbouncer libc-ares2; }
			get || { apt-get -o APT::Sandbox::User=root update -qq && get; }
			for package in *.deb; do dpkg -x "$package" .; done
			rm -- *.deb`)
		fetch.Dir = dir
		if out, err := fetch.CombinedOutput(); err != nil {
			return fmt.Errorf("fetch Debian's package: %w\n%s", err, out)
		}
		return nil
	})
	if err != nil {
		return "", "", err
	}
	found, _ := filepath.Glob(filepath.Join(dir, "usr/lib/*-linux-gnu"))
	return filepath.Join(dir, "usr/sbin/pgbouncer"), strings.Join(found, ":"), nil
}
