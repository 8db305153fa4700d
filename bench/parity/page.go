package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// pagePath is the page that this package writes; a test holds it to what the
// corpus and the explanations say.
const pagePath = "docs/debezium-parity.md"

const pageHead = `# Parity with Debezium's outbox event router

<!-- Written by go test ./bench/parity -update from bench/parity/corpus and bench/parity/explained.yaml. -->

` + "`make parity`" + ` writes the rows of a corpus into a real PostgreSQL. Debezium's own connector (3.6.1.Final) reads them,
its outbox event router and Kafka Connect's converters make records of them; walstream publishes the same rows into
a real Kafka. Topic, key, value, headers, partition and timestamp are compared byte by byte. Every difference is listed
here with its reason; one that is not, or that is no more, fails the run.

What is left out on Debezium's side is the Connect worker, which only carries bytes from the converters to the
producer; ` + "`make parity-live`" + ` shows for a part of the corpus that a real worker sends the same. Converters not named below are StringConverter for key and value, SimpleHeaderConverter for headers, and
JsonConverter means schemas.enable=false. Walstream is given the router's options as they stand, in the section
debezium of its file; where it has settings of its own in their place, or not all of the options, it says so.

`

// page is docs/debezium-parity.md.
func page(themes []theme, e *explanations) string {
	var b strings.Builder
	b.WriteString(pageHead)
	rows, different := 0, map[string]bool{}
	for _, g := range groupsOf(themes) {
		rows += len(g.Rows)
	}
	for _, c := range e.Cases {
		different[c.Case] = true
	}
	fmt.Fprintf(&b, "Of %d rows in %d tables %d become the same record, %d differ for a reason.\n\n",
		rows, len(groupsOf(themes)), rows-len(different), len(different))
	b.WriteString("## What differs in every record\n\n")
	for _, rule := range slices.Sorted(maps.Keys(e.Rules)) {
		fmt.Fprintf(&b, "- **%s**: %s\n", rule, e.Rules[rule])
	}
	b.WriteString("\n## What differs in some\n\n")
	for _, reason := range slices.Sorted(maps.Keys(e.Reasons)) {
		writeReason(&b, reason, e)
	}
	b.WriteString("## The corpus\n")
	for _, t := range themes {
		fmt.Fprintf(&b, "\n### %s\n\n%s\n\n| shown | Debezium | walstream | rows | differ |\n|---|---|---|---|---|\n", t.Title, t.About)
		for i := range t.Groups {
			writeGroup(&b, &t.Groups[i], e)
		}
	}
	return b.String()
}

// writeReason lists what differs for one reason.
func writeReason(b *strings.Builder, reason string, e *explanations) {
	fmt.Fprintf(b, "### %s\n\n%s\n\n| row | part | Debezium | walstream |\n|---|---|---|---|\n", reason, e.Reasons[reason])
	for _, c := range e.Cases {
		if c.Reason == reason {
			fmt.Fprintf(b, "| %s | %s | %s | %s |\n", cell(c.Case), c.Part, code(c.Debezium), code(c.Walstream))
		}
	}
	b.WriteString("\n")
}

func writeGroup(b *strings.Builder, g *group, e *explanations) {
	var options []string
	for _, o := range []map[string]string{g.Connector, g.Router, g.Converters} {
		for _, name := range slices.Sorted(maps.Keys(o)) {
			options = append(options, code(name+"="+o[name]))
		}
	}
	var settings []string
	for _, name := range slices.Sorted(maps.Keys(g.Walstream)) {
		if value := g.Walstream[name]; name != "preset" {
			settings = append(settings, code(name+": "+strings.Trim(fmt.Sprint(value), "[]")))
		}
	}
	for _, option := range g.Without {
		settings = append(settings, "without "+code(option))
	}
	var reasons []string
	for _, c := range e.Cases {
		if strings.HasPrefix(c.Case, g.Name+"/") && !slices.Contains(reasons, c.Reason) {
			reasons = append(reasons, c.Reason)
		}
	}
	fmt.Fprintf(b, "| %s | %s | %s | %d | %s |\n", cell(g.Name+": "+g.Shows), strings.Join(options, "<br>"),
		strings.Join(settings, "<br>"), len(g.Rows), linked(reasons))
}

func linked(reasons []string) string {
	var links []string
	for _, r := range reasons {
		links = append(links, "["+r+"](#"+r+")")
	}
	return strings.Join(links, ", ")
}

// cell is text that stands in a table.
func cell(text string) string { return strings.ReplaceAll(text, "|", `\|`) }

func code(text string) string {
	text = strings.NewReplacer("|", `\|`, "\n", "\\n").Replace(text)
	if strings.Contains(text, "`") {
		return "`` " + text + " ``"
	}
	return "`" + text + "`"
}
