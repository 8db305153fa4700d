package service

import (
	"os/exec"
	"syscall"
)

// endWithParent makes the child end when this process does, however it ends.
func endWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}
