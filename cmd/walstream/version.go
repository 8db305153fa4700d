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

const commandVersion = "version"

func printVersion(out io.Writer) error {
	if _, err := fmt.Fprintf(out, "walstream %s %s %s/%s\n", version, runtime.Version(), runtime.GOOS, runtime.GOARCH); err != nil {
		return err
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return nil
	}
	_, err := io.WriteString(out, revisionOf(info))
	return err
}

// revisionOf a build, from git by way of the compiler; empty where it was built
// without.
func revisionOf(info *debug.BuildInfo) string {
	settings := map[string]string{}
	for _, s := range info.Settings {
		settings[s.Key] = s.Value
	}
	revision := settings["vcs.revision"]
	if revision == "" {
		return ""
	}
	if settings["vcs.modified"] == "true" {
		revision += " (changed since)"
	}
	return fmt.Sprintf("revision %s of %s\n", revision, settings["vcs.time"])
}
