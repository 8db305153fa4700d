package tool

import (
	"os"
	"testing"
	"time"
)

func TestProc(t *testing.T) {
	if _, err := os.Stat("/proc/self/stat"); err != nil {
		t.Skip("skipped: no /proc here")
	}
	peak, err := PeakRSS(os.Getpid())
	if err != nil || peak < 1<<20 || peak > 1<<36 {
		t.Errorf("peak %d: %v", peak, err)
	}
	const work = 30 * time.Millisecond
	begun, err := CPUTime(os.Getpid())
	for from, cpu := time.Now(), begun; err == nil && cpu < begun+work; cpu, err = CPUTime(os.Getpid()) {
		if time.Since(from) > 10*time.Second {
			t.Fatalf("10 s of work left the CPU time at %s", cpu)
		}
	}
	if err != nil || begun > time.Hour {
		t.Errorf("cpu %s: %v", begun, err)
	}
	if _, err := CPUTime(0); err == nil {
		t.Error("no process has the id 0")
	}
}
