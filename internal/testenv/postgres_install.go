package testenv

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"

	embedded "github.com/fergusstrange/embedded-postgres"
)

// fetchedVersions are the builds fetched when a major is not found: the last
// part is the build's own.
var fetchedVersions = map[int]string{15: "15.19.0", 16: "16.15.0", 17: "17.11.0", 18: "18.6.0"}

// pgInstall is a directory with PostgreSQL's programs.
type pgInstall struct {
	bin     string
	major   int
	version string // names the template made with it
}

// findPostgres looks on the PATH and where packages put it, then fetches.
func findPostgres(ctx context.Context, major int) (pgInstall, error) {
	wanted := major
	if wanted == 0 {
		wanted = NewestMajor
	}
	found := installed()
	if install, ok := found[wanted]; ok {
		return install, nil
	}
	install, err := fetched[wanted].get(func() (pgInstall, error) { return fetchPostgres(context.WithoutCancel(ctx), wanted) })
	if err == nil || major != 0 {
		return install, err
	}
	for other := NewestMajor; other >= OldestMajor; other-- {
		if install, ok := found[other]; ok {
			return install, nil
		}
	}
	return install, err
}

// fetched remembers, for each major, how the fetch ended: every test of a
// machine without a network would try again.
var fetched [NewestMajor + 1]once[pgInstall]

// installed returns the supported majors found on this machine.
var installed = sync.OnceValue(func() map[int]pgInstall {
	found := make(map[int]pgInstall)
	var dirs []string
	if program, err := exec.LookPath("postgres"); err == nil {
		if program, err = filepath.EvalSymlinks(program); err == nil {
			dirs = append(dirs, filepath.Dir(program))
		}
	}
	for major := OldestMajor; major <= NewestMajor; major++ {
		for _, pattern := range []string{
			"/usr/lib/postgresql/%d/bin", "/usr/pgsql-%d/bin", "/usr/local/pgsql-%d/bin",
			"/opt/homebrew/opt/postgresql@%d/bin", "/usr/local/opt/postgresql@%d/bin",
		} {
			dirs = append(dirs, fmt.Sprintf(pattern, major))
		}
	}
	for _, dir := range dirs {
		install, err := inspect(dir)
		if _, have := found[install.major]; err == nil && !have && install.major >= OldestMajor && install.major <= NewestMajor {
			found[install.major] = install
		}
	}
	return found
})

// inspect asks the programs of a directory for their version.
func inspect(dir string) (pgInstall, error) {
	if _, err := os.Stat(program(dir, "initdb")); err != nil {
		return pgInstall{}, err
	}
	text, err := exec.Command(program(dir, "postgres"), "--version").Output()
	if err != nil {
		return pgInstall{}, err
	}
	// postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)
	fields := strings.Fields(string(text))
	if len(fields) < 3 {
		return pgInstall{}, fmt.Errorf("%s: unknown version %q", dir, text)
	}
	before, _, _ := strings.Cut(fields[2], ".")
	major, err := strconv.Atoi(before)
	if err != nil {
		return pgInstall{}, fmt.Errorf("%s: unknown version %q", dir, text)
	}
	return pgInstall{bin: dir, major: major, version: fields[2]}, nil
}

func program(dir, name string) string {
	if runtime.GOOS == "windows" {
		name += ".exe"
	}
	return filepath.Join(dir, name)
}

// fetchPostgres downloads the programs into the cache.
func fetchPostgres(ctx context.Context, major int) (pgInstall, error) {
	version := fetchedVersions[major]
	dir, err := cached(ctx, filepath.Join("postgres", version), func(dir string) error {
		return downloadPostgres(dir, version)
	})
	if err != nil {
		return pgInstall{}, err
	}
	return inspect(filepath.Join(dir, "bin"))
}

// downloadPostgres uses embedded-postgres for the download, its check and the
// unpacking only. The library does these inside Start, and runs initdb next: an
// encoding that does not exist ends it there, before any server.
func downloadPostgres(dir, version string) error {
	scratch, err := os.MkdirTemp("", "walstream-fetch-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(scratch) }()
	claimed, err := claimPorts(1)
	if err != nil {
		return err
	}
	defer claimed.release()
	err = embedded.NewDatabase(embedded.DefaultConfig().
		Version(embedded.PostgresVersion(version)).
		Port(uint32(claimed.numbers[0])).
		CachePath(filepath.Join(scratch, "download")).
		RuntimePath(filepath.Join(scratch, "run")).
		BinariesPath(dir).
		Encoding("only-the-programs-are-wanted").
		Logger(io.Discard)).Start()
	if _, missing := os.Stat(program(filepath.Join(dir, "bin"), "postgres")); missing == nil {
		return nil
	}
	if err == nil {
		err = errors.New("nothing was unpacked")
	}
	return closed("fetch PostgreSQL %s: %v", version, err)
}

// pgTemplate returns a data directory fresh from initdb, to be copied.
func pgTemplate(ctx context.Context, install pgInstall) (string, error) {
	as := unprivileged()
	name := filepath.Join("postgres", "template-"+install.version)
	dir, err := cached(ctx, name, func(dir string) error {
		if err := as.own(dir); err != nil {
			return err
		}
		if err := as.reach(dir); err != nil {
			return err
		}
		return initdb(ctx, install, filepath.Join(dir, "data"), as)
	})
	return filepath.Join(dir, "data"), err
}

func initdb(ctx context.Context, install pgInstall, data string, as *identity) error {
	password := filepath.Join(filepath.Dir(data), "password")
	if err := os.WriteFile(password, []byte(superuserPassword+"\n"), 0o644); err != nil {
		return err
	}
	defer func() { _ = os.Remove(password) }()
	// Without these two a machine without LANG gets a SQL_ASCII cluster.
	cmd := exec.CommandContext(ctx, program(install.bin, "initdb"), "-N", "-D", data, "--encoding=UTF8", "--locale=C",
		"--username="+superuser, "--pwfile="+password, "--auth=scram-sha-256")
	cmd.Dir = filepath.Dir(data)
	cmd.Env = pgEnvironment()
	confine(cmd, as, syscall.SIGKILL)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("initdb of PostgreSQL %s: %w\n%s", install.version, err, out)
	}
	return nil
}
