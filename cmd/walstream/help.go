package main

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/alecthomas/kong"
)

// printHelp writes what fits a screen, for each command too.
func printHelp(out io.Writer, inv *invocation) error {
	var b strings.Builder
	switch inv.command {
	case "":
		b.WriteString("Your Postgres outbox in Kafka: nothing lost, nothing twice, in order.\n\n")
		b.WriteString("  walstream --slot NAME [settings]   stream until SIGTERM\n")
		for _, c := range inv.model.Children {
			writeLine(&b, inv.model.Children, c)
		}
	default:
		writeCommand(&b, inv)
	}
	if inv.command == commandConfig {
		b.WriteString("Settings: flags, variables WALSTREAM_<NAME>, or lines in the file of --config\n")
		writeNames(&b, inv.model.Flags)
	} else {
		b.WriteString("\nA setting is a flag, a variable WALSTREAM_<NAME>, or a line in the file of --config;\n")
		b.WriteString("of several the first in this order counts, an empty one too.\n")
		for _, f := range inv.model.Flags {
			if f.Tag.Get("common") != "" {
				writeSetting(&b, f, settingWidth)
			}
		}
		b.WriteString("walstream config --help has the others; walstream COMMAND --help a command's own flags.\n")
	}
	_, err := io.WriteString(out, b.String())
	return err
}

// besides are commands that stand in another's line: the help fits a screen.
var besides = map[string]string{commandResume: commandPause, commandVersion: commandConfig}

func writeLine(b *strings.Builder, all []*kong.Node, c *kong.Node) {
	if besides[c.Name] != "" {
		return
	}
	name, help := c.Name, c.Help
	for _, other := range all {
		if besides[other.Name] == c.Name {
			name, help = name+", "+other.Name, help+"; "+other.Help
		}
	}
	fmt.Fprintf(b, "  walstream %-24s %s\n", name, help)
}

// writeCommand writes what is a command's own.
func writeCommand(b *strings.Builder, inv *invocation) {
	for _, c := range inv.model.Children {
		if c.Name != inv.command {
			continue
		}
		usage := "walstream " + c.Name
		for _, p := range c.Positional {
			usage += " " + strings.ReplaceAll(p.Tag.Get("words"), ",", "|")
		}
		fmt.Fprintf(b, "%s --slot NAME [flags]\n  %s\n", usage, c.Help)
		if len(c.Flags) > 0 {
			b.WriteString("\nFlags of " + c.Name + ", which neither file nor variables know\n")
		}
		for _, f := range c.Flags {
			writeSetting(b, f, ownWidth)
		}
	}
}

// helpWidth is what a line of help may take.
const helpWidth = 99

// writeNames lists every setting by its name alone.
func writeNames(b *strings.Builder, flags []*kong.Flag) {
	group, line := "", ""
	flush := func() {
		if line != "" {
			b.WriteString(line + " \n")
		}
	}
	for _, f := range flags {
		if f.Group == nil {
			continue
		}
		if f.Group.Title != group {
			flush()
			group = f.Group.Title
			line = group + ":"
		}
		name := "  --" + f.Name
		if len(line)+len(name) >= helpWidth {
			flush()
			line = ""
		}
		line += name
	}
	flush()
}

// printSettings lists every setting with its help and default.
func printSettings(out io.Writer, inv *invocation) error {
	var b strings.Builder
	writeGroups(&b, inv.model.Flags)
	_, err := io.WriteString(out, strings.TrimPrefix(b.String(), "\n"))
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
		writeSetting(b, f, settingWidth)
	}
}

// Columns of a flag with its value: the longest setting, the longest of a command.
const (
	settingWidth = 34
	ownWidth     = 26
)

func writeSetting(b *strings.Builder, f *kong.Flag, width int) {
	name := "--" + f.Name
	if !f.IsBool() {
		name += " " + cmp.Or(f.PlaceHolder, typeWord(f.Target.Interface()))
	}
	help := f.Help
	if f.Default != "" && f.Default != "0" && f.Default != "false" {
		help += " (" + f.Default + ")"
	}
	fmt.Fprintf(b, "  %-*s %s\n", width, name, help)
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
