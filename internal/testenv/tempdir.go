package testenv

import (
	"context"
	"os"
	"path/filepath"
	"strings"
)

const (
	tempPrefix = "walstream-"
	ownerLock  = "owner.lock"
)

// tempDir is a directory that goes with its process: removed by remove, or,
// after a kill, by the next tempDir of anybody, who finds its lock free.
type tempDir struct {
	path string
	lock *os.File
}

func newTempDir(ctx context.Context, name string, owner *identity) (*tempDir, error) {
	root, err := cacheDir()
	if err != nil {
		return nil, err
	}
	// One at a time: nobody sweeps a directory that is not locked yet.
	making, err := waitLock(ctx, filepath.Join(root, "tempdirs.lock"))
	if err != nil {
		return nil, err
	}
	defer func() { _ = making.Close() }()
	sweep(os.TempDir())
	path, err := os.MkdirTemp("", tempPrefix+name+"-")
	if err != nil {
		return nil, err
	}
	lock, err := waitLock(ctx, filepath.Join(path, ownerLock))
	if err != nil {
		return nil, err
	}
	return &tempDir{path: path, lock: lock}, owner.own(path)
}

// sweep removes the directories whose owner is gone.
func sweep(parent string) {
	entries, _ := os.ReadDir(parent)
	for _, entry := range entries {
		path := filepath.Join(parent, entry.Name())
		if !entry.IsDir() || !strings.HasPrefix(entry.Name(), tempPrefix) || !exists(filepath.Join(path, ownerLock)) {
			continue
		}
		lock, err := tryLock(filepath.Join(path, ownerLock))
		if err != nil {
			continue
		}
		_ = os.RemoveAll(path)
		_ = lock.Close()
	}
}

func (d *tempDir) remove() {
	if d == nil {
		return
	}
	_ = os.RemoveAll(d.path)
	_ = d.lock.Close()
}
