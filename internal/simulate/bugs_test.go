package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// A patch that no longer fits the code would be missed only by make
// simulate-bugs, which takes minutes.
func TestPatchesFit(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	bugs, err := filepath.Glob(filepath.Join(root, patches, "*.patch"))
	if err != nil || len(bugs) < 12 {
		t.Fatalf("%d patches, %v", len(bugs), err)
	}
	for _, bug := range bugs {
		t.Run(filepath.Base(bug), func(t *testing.T) {
			text, err := os.ReadFile(bug)
			if err != nil {
				t.Fatal(err)
			}
			where, _, _ := strings.Cut(string(text), ":")
			for _, line := range strings.Split(string(text), "\n") {
				path, changed := strings.CutPrefix(line, "+++ b/")
				if isTest := strings.HasSuffix(path, "_test.go"); changed && (isTest && where != "model" || !isTest && where != "product") {
					t.Errorf("its first line says %s:, and it changes %s", where, path)
				}
			}
			cmd := exec.Command("git", "apply", "--check", bug)
			cmd.Dir = root
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%v: %s", err, out)
			}
		})
	}
}
