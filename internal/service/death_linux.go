package service

import (
	"os/exec"
	"syscall"
)

// endWithParent makes the child end when this process does, however it ends.
// Ctrl-C is for the parent only, which knows when the child should stop.
func endWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}
