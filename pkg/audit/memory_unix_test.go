//go:build unix

package audit

import (
	"os"
	"runtime"
	"syscall"
)

// peakMemory of a process that has ended, in bytes.
func peakMemory(state *os.ProcessState) int64 {
	usage, ok := state.SysUsage().(*syscall.Rusage)
	switch {
	case !ok:
		return 0
	case runtime.GOOS == "linux":
		return int64(usage.Maxrss) << 10 //nolint:unconvert // its type differs between systems
	}
	return int64(usage.Maxrss) //nolint:unconvert // its type differs between systems
}
