package main

import (
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"time"
)

func main() {
	version := flag.String("version", "", "of the release")
	authorities := flag.String("authorities", "/etc/ssl/certs/ca-certificates.crt", "PEM file for the images")
	modified := flag.Bool("modified", false, "take binaries of a tree with changes that are not committed")
	flag.Parse()
	if *version == "" || flag.NArg() != 1 {
		fmt.Fprintln(os.Stderr, "usage: release -version VERSION DIRECTORY")
		os.Exit(2)
	}
	if err := release(flag.Arg(0), *version, *authorities, *modified); err != nil {
		fmt.Fprintln(os.Stderr, "release: "+err.Error())
		os.Exit(1)
	}
}

// binary is one that was built.
type binary struct {
	path, name string
	os, arch   string
	info       *debug.BuildInfo
	settings   map[string]string
	content    []byte
	revision   string
	at         time.Time // of the commit
}

// release adds to the directory what goes out with its binaries.
func release(dir, version, authorities string, modified bool) error {
	paths, err := filepath.Glob(filepath.Join(dir, "walstream-*-*"))
	if err != nil {
		return err
	}
	var files []string
	for _, path := range paths {
		if strings.HasSuffix(path, ".json") || strings.HasSuffix(path, ".tar") {
			continue // of the last time
		}
		b, err := readBinary(path)
		if err != nil {
			return err
		}
		if b.settings["vcs.modified"] == "true" && !modified {
			return fmt.Errorf("%s was built from a tree with changes that are not committed: commit them, or see what it would be with MODIFIED=1", path)
		}
		made, err := b.accompany(version, authorities)
		if err != nil {
			return err
		}
		files = append(append(files, path), made...)
	}
	if len(files) == 0 {
		return fmt.Errorf("no binaries in %s", dir)
	}
	return writeSums(dir, files)
}

func readBinary(path string) (*binary, error) {
	b := &binary{path: path, name: strings.TrimSuffix(filepath.Base(path), ".exe"), settings: map[string]string{}}
	var err error
	if b.info, err = buildinfo.ReadFile(path); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	for _, s := range b.info.Settings {
		b.settings[s.Key] = s.Value
	}
	b.os, b.arch, b.revision = b.settings["GOOS"], b.settings["GOARCH"], b.settings["vcs.revision"]
	if b.settings["CGO_ENABLED"] != "0" || b.settings["-trimpath"] != "true" {
		return nil, fmt.Errorf("%s: neither static nor without paths: build it by make release", path)
	}
	if b.at, err = time.Parse(time.RFC3339, b.settings["vcs.time"]); err != nil {
		return nil, fmt.Errorf("%s does not say of which commit it is: build it in a clone, with git", path)
	}
	b.content, err = os.ReadFile(path)
	return b, err
}

// accompany writes what goes with the binary, and returns the files.
func (b *binary) accompany(version, authorities string) (files []string, err error) {
	bill, err := b.bill(version)
	if err != nil {
		return nil, err
	}
	base := strings.TrimSuffix(b.path, ".exe")
	files = append(files, base+".cdx.json")
	if err := os.WriteFile(files[0], bill, 0o644); err != nil {
		return nil, err
	}
	if b.os != "linux" {
		return files, nil
	}
	pem, err := os.ReadFile(authorities)
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("no authorities for TLS in %s: install ca-certificates, or name a PEM file by AUTHORITIES", authorities)
	}
	if err != nil {
		return nil, err
	}
	content, err := b.image(version, pem)
	if err != nil {
		return nil, err
	}
	files = append(files, base+".image.tar")
	return files, os.WriteFile(files[1], content, 0o644)
}

// writeSums as sha256sum -c reads them.
func writeSums(dir string, files []string) error {
	slices.Sort(files)
	var sums strings.Builder
	for _, path := range files {
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		fmt.Fprintf(&sums, "%s  %s\n", digest(content), filepath.Base(path))
	}
	return os.WriteFile(filepath.Join(dir, "SHA256SUMS"), []byte(sums.String()), 0o644)
}

func digest(content []byte) string {
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:])
}
