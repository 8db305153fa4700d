//go:build !linux

package testenv

import (
	"os"
	"os/exec"
	"syscall"
)

// identity is the user a server runs as when this process may not be it; only
// Linux has one.
type identity struct{}

func unprivileged() *identity { return nil }

func (*identity) own(string) error { return nil }

func (*identity) reach(string) error { return nil }

// confine: without a parent-death signal a killed test leaves its servers
// running; Main and Close stop them.
func confine(*exec.Cmd, *identity, syscall.Signal) {}

func killFamily(pid int) error {
	process, err := os.FindProcess(pid)
	if err != nil {
		return err
	}
	return process.Kill()
}
