package testenv

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Jars returns the cached directory of the jars that a Maven pom names, fetched
// on first use. An UnavailableError says that they cannot be had here.
func Jars(ctx context.Context, name, pom string) (string, error) {
	version := fmt.Sprintf("%s-%.12x", name, sha256.Sum256([]byte(pom)))
	dir, err := cached(ctx, filepath.Join("jars", version), func(dir string) error {
		return fetchJars(ctx, dir, pom)
	})
	var shut *closedError
	if errors.As(err, &shut) {
		err = &UnavailableError{What: name + " jars", Reasons: []string{err.Error()}}
	}
	return dir, err
}

func fetchJars(ctx context.Context, dir, pom string) error {
	maven, err := exec.LookPath("mvn")
	if err != nil {
		return closed("no mvn on the PATH to fetch jars with")
	}
	path := filepath.Join(dir, "pom.xml")
	if err := os.WriteFile(path, []byte(pom), 0o644); err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, maven, "-q", "-B", "-f", path, "dependency:copy-dependencies", "-DoutputDirectory="+dir)
	if out, err := cmd.CombinedOutput(); err != nil {
		return closed("fetch jars: %v: %s", err, firstLine(out))
	}
	return nil
}

func firstLine(text []byte) string {
	line, _, _ := strings.Cut(strings.TrimSpace(string(text)), "\n")
	return line
}
