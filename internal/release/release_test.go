package main

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
)

const testVersion = "v9.9.9-rc.1+test"

// tree is a copy of this module as it stands, committed somewhere else: the same
// commit, whoever makes it and when.
func tree(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "walstream")
	list := exec.Command("git", "ls-files", "--cached", "--others", "--exclude-standard", "-z")
	list.Dir = "../.."
	names, err := list.Output()
	if err != nil {
		t.Skip("git cannot list the files of this module: ", err)
	}
	for name := range strings.SplitSeq(strings.TrimRight(string(names), "\x00"), "\x00") {
		content, err := os.ReadFile(filepath.Join("../..", name))
		if errors.Is(err, os.ErrNotExist) {
			continue // removed, and not yet committed
		}
		if err == nil {
			err = os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755)
		}
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), content, 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	run(t, dir, "git", "init", "-q")
	run(t, dir, "git", "add", "-A")
	run(t, dir, "git", "-c", "commit.gpgsign=false", "commit", "-q", "-m", "release")
	return dir
}

func run(t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@b", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@b",
		"GIT_AUTHOR_DATE=2026-01-02T03:04:05Z", "GIT_COMMITTER_DATE=2026-01-02T03:04:05Z", "MAKEFLAGS=")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %v: %v\n%s", name, args, err, out)
	}
	return string(out)
}

// built builds this platform's binary the way make release does, in a tree of its
// own, and releases it.
func built(t *testing.T) (dist, name string) {
	t.Helper()
	dir := tree(t)
	run(t, dir, "make", "build", "VERSION="+testVersion)
	dist, name = filepath.Join(dir, "dist"), "walstream-"+runtime.GOOS+"-"+runtime.GOARCH
	if err := os.Mkdir(dist, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(dir, "bin", "walstream"), filepath.Join(dist, name)); err != nil {
		t.Fatal(err)
	}
	authorities := filepath.Join(dist, "ca.pem")
	if err := os.WriteFile(authorities, []byte("authorities"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := release(dist, testVersion, authorities, false); err != nil {
		t.Fatal(err)
	}
	return dist, name
}

// A release is built twice, in two places: the same bytes. What goes out with it
// says what is in it, and holds it.
func TestRelease(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("images are of Linux")
	}
	first, name := built(t)
	second, _ := built(t)
	sums := read(t, first, "SHA256SUMS")
	if again := read(t, second, "SHA256SUMS"); !bytes.Equal(sums, again) {
		t.Errorf("the second build has other sums:\n%s\n%s", sums, again)
	}
	if lines := strings.Count(string(sums), "\n"); lines != 3 {
		t.Errorf("sums of %d files, want 3:\n%s", lines, sums)
	}
	run(t, first, "sha256sum", "--check", "--strict", "SHA256SUMS")
	checkBill(t, first, name)
	checkImage(t, first, name)
}

func read(t *testing.T, path ...string) []byte {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(path...))
	if err != nil {
		t.Fatal(err)
	}
	return content
}

// checkBill holds it against what go version -m says.
func checkBill(t *testing.T, dist, name string) {
	var bill bom
	decoder := json.NewDecoder(bytes.NewReader(read(t, dist, name+".cdx.json")))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&bill); err != nil {
		t.Fatal(err)
	}
	if bill.Format != "CycloneDX" || bill.SpecVersion != "1.6" || len(bill.SerialNumber) != len("urn:uuid:")+36 || bill.Metadata.Timestamp != "2026-01-02T03:04:05Z" {
		t.Errorf("%+v", bill.Metadata)
	}
	if self := bill.Metadata.Component; self.Hashes[0].Content != digest(read(t, dist, name)) || self.PackageURL != "pkg:golang/"+module+"@v9.9.9-rc.1%2Btest" {
		t.Errorf("%+v", self)
	}
	var got []string
	for _, c := range bill.Components {
		got = append(got, c.Name+" "+c.Version)
	}
	want := []string{"std " + strings.TrimPrefix(runtime.Version(), "go")}
	for line := range strings.Lines(run(t, dist, "go", "version", "-m", name)) {
		if fields := strings.Fields(line); len(fields) >= 3 && fields[0] == "dep" {
			want = append(want, fields[1]+" "+fields[2])
		}
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) || len(want) < 10 {
		t.Errorf("the bill has\n%q\nthe binary\n%q", got, want)
	}
	if refs := bill.Dependencies[0].DependsOn; len(refs) != len(want) || len(slices.Compact(slices.Sorted(slices.Values(refs)))) != len(want) {
		t.Errorf("%d references for %d components", len(refs), len(want))
	}
}

// checkImage follows it from both of its beginnings down to the files, and runs the
// binary that it holds.
func checkImage(t *testing.T, dist, name string) {
	image := untar(t, read(t, dist, name+".image.tar"))
	for path, content := range image {
		if sum, ok := strings.CutPrefix(path, "blobs/sha256/"); ok && sum != digest(content) {
			t.Errorf("%s holds %s", path, digest(content))
		}
	}
	var docker []struct {
		Config           string
		RepoTags, Layers []string
	}
	parse(t, image["manifest.json"], &docker)
	type descriptor struct {
		Digest string
		Size   int
	}
	var index struct{ Manifests []descriptor }
	parse(t, image["index.json"], &index)
	blobOf := func(d descriptor) []byte {
		content := image["blobs/sha256/"+strings.TrimPrefix(d.Digest, "sha256:")]
		if len(content) != d.Size {
			t.Errorf("%s has %d bytes, want %d", d.Digest, len(content), d.Size)
		}
		return content
	}
	var manifest struct {
		Config descriptor
		Layers []descriptor
	}
	parse(t, blobOf(index.Manifests[0]), &manifest)
	if docker[0].RepoTags[0] != "walstream:v9.9.9-rc.1-test" || !bytes.Equal(image[docker[0].Config], blobOf(manifest.Config)) ||
		!bytes.Equal(image[docker[0].Layers[0]], blobOf(manifest.Layers[0])) {
		t.Errorf("manifest.json and index.json lead to different images: %+v", docker)
	}
	var config struct {
		OS, Architecture string
		Config           struct {
			User       string
			Entrypoint []string
		}
		RootFS struct {
			DiffIDs []string `json:"diff_ids"`
		}
	}
	parse(t, blobOf(manifest.Config), &config)
	if config.OS != "linux" || config.Architecture != runtime.GOARCH || config.Config.User != "65532:65532" ||
		config.Config.Entrypoint[0] != "/walstream" || config.RootFS.DiffIDs[0] != manifest.Layers[0].Digest {
		t.Errorf("%+v", config)
	}
	layer := untar(t, blobOf(manifest.Layers[0]))
	if string(layer["etc/ssl/certs/ca-certificates.crt"]) != "authorities" {
		t.Error("the image has no authorities")
	}
	path := filepath.Join(t.TempDir(), "walstream")
	if err := os.WriteFile(path, layer["walstream"], 0o755); err != nil {
		t.Fatal(err)
	}
	if out := run(t, dist, path, "version"); !strings.HasPrefix(out, "walstream "+testVersion+" go") || !strings.Contains(out, " of 2026-01-02T03:04:05Z\n") {
		t.Errorf("the binary of the image says %q", out)
	}
}

func parse(t *testing.T, text []byte, into any) {
	t.Helper()
	if err := json.Unmarshal(text, into); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
}

func untar(t *testing.T, content []byte) map[string][]byte {
	t.Helper()
	files := map[string][]byte{}
	for r := tar.NewReader(bytes.NewReader(content)); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		if header.ModTime.UTC().Format("2006-01-02T15:04:05Z") != "2026-01-02T03:04:05Z" {
			t.Errorf("%s is of %s", header.Name, header.ModTime)
		}
		if header.Typeflag == tar.TypeDir {
			continue
		}
		if files[header.Name], err = io.ReadAll(r); err != nil {
			t.Fatal(err)
		}
	}
}

// What cannot be released says why: a test binary is neither static nor of a commit.
func TestNoRelease(t *testing.T) {
	dir := t.TempDir()
	if err := release(dir, "v1", "", false); err == nil || !strings.Contains(err.Error(), "no binaries") {
		t.Error(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "walstream-linux-amd64"), read(t, self), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := release(dir, "v1", "", false); err == nil || !strings.Contains(err.Error(), "make release") {
		t.Error(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "walstream-linux-amd64"), []byte("#!/bin/sh"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := release(dir, "v1", "", false); err == nil || !strings.Contains(err.Error(), "walstream-linux-amd64") {
		t.Error(err)
	}
}
