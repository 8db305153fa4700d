package main

import (
	"os"
	"strings"
	"unsafe"
)

// hideArguments writes over the secrets in the process's arguments, which every
// user of the machine can read in /proc and by ps: on Linux the strings of os.Args
// lie where the kernel reads them. The moment before is not hidden: a file or a
// variable is the better place. Whoever keeps a piece of os.Args has to clone it.
func hideArguments(redact func(string) string) {
	for _, arg := range os.Args[1:] {
		hidden := redact(arg)
		if hidden == arg {
			continue
		}
		if len(hidden) > len(arg) {
			hidden = strings.Repeat("*", len(arg))
		}
		hidden += strings.Repeat(" ", len(arg)-len(hidden))
		copy(unsafe.Slice(unsafe.StringData(arg), len(arg)), hidden)
	}
}
