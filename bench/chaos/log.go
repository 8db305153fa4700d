package main

import (
	"bytes"
	"io"
	"strings"
)

// labelled writes whole lines, each with the instance that wrote it and the
// moment it did.
type labelled struct {
	out   io.Writer
	label string
	rest  []byte
}

func (l *labelled) Write(p []byte) (int, error) {
	l.rest = append(l.rest, p...)
	whole := bytes.LastIndexByte(l.rest, '\n') + 1
	var text strings.Builder
	for line := range bytes.Lines(l.rest[:whole]) {
		text.WriteString(l.label)
		text.Write(line)
	}
	l.rest = l.rest[whole:]
	if _, err := io.WriteString(l.out, text.String()); err != nil {
		return 0, err
	}
	return len(p), nil
}

// lastLines of a text.
func lastLines(text string, n int) string {
	lines := strings.Split(text, "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
