//go:build unix

package audit

import (
	"os"
	"runtime"
	"syscall"
)

// peakMemory of a child that has ended, in bytes; 0 when it cannot be told. Linux
// counts what the child shared with us between fork and exec: no more than our own
// peak says nothing about it (the race detector makes us large).
func peakMemory(state *os.ProcessState) int64 {
	child, ok := state.SysUsage().(*syscall.Rusage)
	if !ok {
		return 0
	}
	var own syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &own); err != nil || child.Maxrss <= own.Maxrss {
		return 0
	}
	if runtime.GOOS == "linux" {
		return int64(child.Maxrss) << 10 //nolint:unconvert // its type differs between systems
	}
	return int64(child.Maxrss) //nolint:unconvert // its type differs between systems
}
