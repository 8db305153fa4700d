package main

import (
	"cmp"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
)

// version is set by the linker: make build takes it from git. Without that it is
// what go install knows, or "devel".
var version string

func init() {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "(devel)" {
		version = cmp.Or(version, info.Main.Version)
	}
	version = cmp.Or(version, "devel")
}

func printVersion(out io.Writer) error {
	_, err := fmt.Fprintf(out, "walstream %s %s %s/%s\n", version, runtime.Version(), runtime.GOOS, runtime.GOARCH)
	return err
}
