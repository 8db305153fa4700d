//go:build !linux

package cases

import "errors"

// What these ask of a process only Linux answers; a test that needs it is
// skipped elsewhere.

func peakMemory(int) (int64, error) { return 0, errors.ErrUnsupported }
func cpuTime(int) (float64, error)  { return 0, errors.ErrUnsupported }
func freeze(int) error              { return errors.ErrUnsupported }
func thaw(int) error                { return errors.ErrUnsupported }
