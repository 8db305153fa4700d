package testenv

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// cacheDir returns the cache, made if need be. Root's is outside its home: the
// unprivileged user that PostgreSQL needs could not reach it there.
func cacheDir() (string, error) {
	dir := os.Getenv(EnvCache)
	if dir == "" && os.Geteuid() == 0 {
		dir = "/var/cache/walstream"
	}
	if dir == "" {
		base, err := os.UserCacheDir()
		if err != nil {
			return "", fmt.Errorf("find a cache directory: %w; set %s", err, EnvCache)
		}
		dir = filepath.Join(base, "walstream")
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("make the cache %s: %w; set %s", dir, err, EnvCache)
	}
	return dir, nil
}

// tryLock takes the lock on path, or fails at once. Closing the file gives the
// lock back.
func tryLock(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	if err := flock(f); err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	return f, nil
}

// waitLock takes the lock on path once its holder gives it back.
func waitLock(ctx context.Context, path string) (*os.File, error) {
	for {
		f, err := tryLock(path)
		if err == nil {
			return f, nil
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("%w, held by another: %w", err, ctx.Err())
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// cached returns the directory name inside the cache, built once by whichever
// process comes first. A build that dies half-way leaves nothing in its place.
func cached(ctx context.Context, name string, build func(dir string) error) (string, error) {
	root, err := cacheDir()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(root, name)
	if exists(dir) {
		return dir, nil
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return "", err
	}
	lock, err := waitLock(ctx, dir+".lock")
	if err != nil {
		return "", err
	}
	defer func() { _ = lock.Close() }()
	if exists(dir) {
		return dir, nil
	}
	building := dir + ".building"
	if err := os.RemoveAll(building); err != nil {
		return "", err
	}
	if err := os.Mkdir(building, 0o755); err != nil {
		return "", err
	}
	if err := build(building); err != nil {
		_ = os.RemoveAll(building)
		return "", err
	}
	return dir, os.Rename(building, dir)
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// copyTree copies directories, regular files and links with their modes, and
// gives the copy to the owner.
func copyTree(from, to string, owner *identity) error {
	return filepath.WalkDir(from, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		target := filepath.Join(to, rel)
		info, err := entry.Info()
		if err != nil {
			return err
		}
		switch {
		case entry.IsDir():
			err = os.MkdirAll(target, info.Mode().Perm())
		case entry.Type()&fs.ModeSymlink != 0:
			var link string
			if link, err = os.Readlink(path); err == nil {
				err = os.Symlink(link, target)
			}
		case entry.Type().IsRegular():
			err = copyFile(path, target, info.Mode().Perm())
		default:
			return nil
		}
		if err != nil {
			return err
		}
		return owner.own(target)
	})
}

func copyFile(from, to string, mode fs.FileMode) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, mode)
	if err != nil {
		return err
	}
	if _, err := io.Copy(out, in); err != nil {
		_ = out.Close()
		return err
	}
	return out.Close()
}
