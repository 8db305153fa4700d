package main

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/alecthomas/kong"
)

// printHelp writes what fits a screen; behind a command that takes every
// setting, every setting.
func printHelp(out io.Writer, inv *invocation) error {
	var b strings.Builder
	b.WriteString("Your Postgres outbox in Kafka: nothing lost, nothing twice, in order.\n\n")
	b.WriteString("  walstream --slot NAME [settings]   stream until SIGTERM\n")
	for _, c := range inv.model.Children {
		fmt.Fprintf(&b, "  walstream %-24s %s\n", c.Name, c.Help)
	}
	b.WriteString("\nA setting is a flag, a variable WALSTREAM_<NAME>, or a line in the file of --config;\n")
	b.WriteString("of several the first in this order counts, an empty one too.\n")
	if inv.command == "" {
		b.WriteString("\n")
		for _, f := range inv.model.Flags {
			if f.Tag.Get("common") != "" {
				writeSetting(&b, f)
			}
		}
		b.WriteString("\nwalstream config --help shows the others.\n")
	} else {
		for _, c := range inv.model.Children {
			if c.Name == inv.command && len(c.Flags) > 0 {
				b.WriteString("\nFlags of " + c.Name + ", which neither file nor variables know\n")
				for _, f := range c.Flags {
					writeSetting(&b, f)
				}
			}
		}
		writeGroups(&b, inv.model.Flags)
	}
	_, err := io.WriteString(out, b.String())
	return err
}

func writeGroups(b *strings.Builder, flags []*kong.Flag) {
	group := ""
	for _, f := range flags {
		title := "Other flags"
		if f.Group != nil {
			title = f.Group.Title
		}
		if title != group {
			group = title
			b.WriteString("\n" + title + "\n")
		}
		writeSetting(b, f)
	}
}

func writeSetting(b *strings.Builder, f *kong.Flag) {
	name := "--" + f.Name
	if !f.IsBool() {
		name += " " + cmp.Or(f.PlaceHolder, typeWord(f.Target.Interface()))
	}
	help := f.Help
	if f.Default != "" && f.Default != "0" && f.Default != "false" {
		help += " (" + f.Default + ")"
	}
	fmt.Fprintf(b, "  %-34s %s\n", name, help)
}

func typeWord(value any) string {
	switch value.(type) {
	case time.Duration:
		return "TIME"
	case Size:
		return "SIZE"
	case int:
		return "N"
	}
	return "WORD"
}
