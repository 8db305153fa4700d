package testenv

import (
	"os"

	"golang.org/x/sys/windows"
)

// flock locks an open file, or fails at once, against other processes and against other opens of
// this one. The lock ends with the process, however it ends.
func flock(f *os.File) error {
	const flags = windows.LOCKFILE_EXCLUSIVE_LOCK | windows.LOCKFILE_FAIL_IMMEDIATELY
	return windows.LockFileEx(windows.Handle(f.Fd()), flags, 0, 1, 0, new(windows.Overlapped))
}
