package main

import (
	"bytes"
	"encoding/json"
	"strings"

	"github.com/rs/zerolog"
)

// childLog passes on what walstream warns of. The rest, a panic for example, is
// kept by the service and shown when walstream has died.
type childLog struct {
	out  *screen
	part []byte // of a line that is still being written
}

func (l *childLog) Write(p []byte) (int, error) {
	l.part = append(l.part, p...)
	for {
		line, rest, whole := bytes.Cut(l.part, []byte("\n"))
		if !whole {
			return len(p), nil
		}
		if warns(line) {
			l.out.line("walstream: %s", readable(line))
		}
		l.part = rest
	}
}

// warns tells the log's warnings and errors.
func warns(line []byte) bool {
	var entry struct{ Level string }
	if json.Unmarshal(line, &entry) != nil {
		return false
	}
	level, err := zerolog.ParseLevel(entry.Level)
	return err == nil && level >= zerolog.WarnLevel && level != zerolog.NoLevel
}

// readable is a JSON line of the log as people read it, any other as it stands.
func readable(line []byte) string {
	var text strings.Builder
	console := zerolog.ConsoleWriter{Out: &text, NoColor: true, TimeFormat: "15:04:05.000"}
	if !json.Valid(line) {
		return string(line)
	}
	if _, err := console.Write(line); err != nil {
		return string(line)
	}
	return strings.TrimSpace(text.String())
}

// shownLines of walstream's log say how it ended; a panic's stack fits.
const shownLines = 40

// lastLines is the end of a log.
func lastLines(log string) string {
	lines := strings.Split(strings.TrimSpace(log), "\n")
	lines = lines[max(0, len(lines)-shownLines):]
	for i, line := range lines {
		lines[i] = "  " + readable([]byte(line))
	}
	return strings.Join(lines, "\n")
}
