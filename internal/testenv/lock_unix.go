//go:build unix

package testenv

import (
	"os"
	"syscall"
)

// flock locks an open file, or fails at once, against other processes and against other opens of
// this one. The lock ends with the process, however it ends.
func flock(f *os.File) error {
	for {
		if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != syscall.EINTR {
			return err
		}
	}
}
