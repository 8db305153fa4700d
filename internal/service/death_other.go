//go:build !linux

package service

import "os/exec"

// endWithParent is Linux's; elsewhere a killed parent leaves the child behind.
func endWithParent(*exec.Cmd) {}
