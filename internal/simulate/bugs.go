package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"text/tabwriter"
)

// patches are the bugs, one each.
const patches = "pkg/pipeline/testdata/bugs"

// findBugs plants one after the other in a copy of the module.
func findBugs(ctx context.Context, dir, only string, seed uint64, seeds int) error {
	bugs, err := filepath.Glob(filepath.Join(patches, only+".patch"))
	if err != nil || len(bugs) == 0 {
		return errors.Join(fmt.Errorf("no %s/%s.patch below the current directory, which has to be the module's root", patches, only), err)
	}
	root := filepath.Join(dir, "copy")
	if err := copyTracked(ctx, root); err != nil {
		return err
	}
	table := tabwriter.NewWriter(os.Stderr, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "bug\tfirst seed\twhat the simulation saw")
	missed := 0
	var last uint64
	for _, bug := range bugs {
		found, err := plant(ctx, root, bug, seed, seeds)
		if err != nil {
			return fmt.Errorf("%s: %w", bug, err)
		}
		name := strings.TrimSuffix(filepath.Base(bug), ".patch")
		if found.Failed == 0 {
			missed++
			fmt.Fprintf(table, "%s\tNOT FOUND\twithin %d seeds\n", name, found.Seeds)
			continue
		}
		last = max(last, found.First)
		fmt.Fprintf(table, "%s\t%d\t%s\n", name, found.First, found.Found)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	if err := printLine(struct {
		Bugs     int    `json:"bugs"`
		Found    int    `json:"found"`
		Seeds    int    `json:"seeds"`
		LastSeed uint64 `json:"last_seed"` // of those at which one was found
	}{len(bugs), len(bugs) - missed, seeds, last}); err != nil {
		return err
	}
	if missed > 0 {
		return fmt.Errorf("%d of %d bugs were not found", missed, len(bugs))
	}
	return nil
}

// plant a bug, look for it, and take it out again.
func plant(ctx context.Context, root, bug string, seed uint64, seeds int) (found report, err error) {
	path, err := filepath.Abs(bug)
	if err != nil {
		return found, err
	}
	if err := apply(ctx, root, path); err != nil {
		return found, err
	}
	defer func() { err = errors.Join(err, apply(ctx, root, "--reverse", path)) }()
	test := filepath.Join(filepath.Dir(root), "planted.test")
	if err := build(ctx, root, test, core); err != nil {
		return found, err
	}
	return run(ctx, test, core, seed, seeds, "-find")
}

// apply a patch in root, which is inside of no repository for git.
func apply(ctx context.Context, root string, args ...string) error {
	cmd := exec.CommandContext(ctx, "git", append([]string{"apply"}, args...)...)
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "GIT_CEILING_DIRECTORIES="+filepath.Dir(root), "GIT_DIR=")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("git apply %s: %w: %s", strings.Join(args, " "), err, out)
	}
	return nil
}

// copyTracked copies the tracked files, as they are in the work tree.
func copyTracked(ctx context.Context, root string) error {
	list, err := exec.CommandContext(ctx, "git", "ls-files", "-z").Output()
	if err != nil {
		return fmt.Errorf("git ls-files: %w", err)
	}
	for path := range strings.SplitSeq(strings.TrimSuffix(string(list), "\x00"), "\x00") {
		data, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue // removed, and the removal is not committed
		}
		target := filepath.Join(root, path)
		if err == nil {
			err = os.MkdirAll(filepath.Dir(target), 0o755)
		}
		if err == nil {
			err = os.WriteFile(target, data, 0o600)
		}
		if err != nil {
			return fmt.Errorf("copy %s: %w", path, err)
		}
	}
	return nil
}
