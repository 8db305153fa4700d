//go:build unix && !linux

package service

import (
	"os/exec"
	"syscall"
)

// endWithParent: a killed parent leaves the child behind here. Ctrl-C is for the
// parent only, which knows when the child should stop.
func endWithParent(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }
