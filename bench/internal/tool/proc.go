package tool

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// PeakRSS of a process in bytes: VmHWM, not the maxrss of rusage, which a forked child
// begins with its parent's memory. An error where there is no /proc.
func PeakRSS(pid int) (int64, error) { return Memory(pid, "VmHWM") }

// Memory is a line of /proc/pid/status, in bytes.
func Memory(pid int, name string) (int64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	for line := range bytes.Lines(text) {
		if fields := strings.Fields(string(line)); len(fields) == 3 && fields[0] == name+":" {
			kilobytes, err := strconv.ParseInt(fields[1], 10, 64)
			return kilobytes << 10, err
		}
	}
	return 0, errors.New("no " + name)
}

// ticks per second in /proc, the same on every Linux.
const ticks = 100

// CPUTime is utime and stime of /proc/pid/stat, the 14th and 15th field; they
// follow a name in brackets that may hold anything.
func CPUTime(pid int) (time.Duration, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	if len(fields) < 13 {
		return 0, errors.New("unknown format")
	}
	user, err := strconv.ParseInt(fields[11], 10, 64)
	if err != nil {
		return 0, err
	}
	system, err := strconv.ParseInt(fields[12], 10, 64)
	return time.Duration(user+system) * time.Second / ticks, err
}
