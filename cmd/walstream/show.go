package main

import (
	"fmt"
	"io"
	"reflect"

	"go.yaml.in/yaml/v4"
)

const commandConfig = "config"

// Show has the flags that only walstream config knows.
type Show struct {
	Schema   bool `name:"schema" help:"print the JSON schema of the settings file, for editors"`
	Settings bool `name:"settings" help:"list every setting with its default"`
}

func (w *Show) run(out io.Writer, inv *invocation) error {
	switch {
	case w.Schema:
		return printSchema(out, inv.config.report)
	case w.Settings:
		return printSettings(out, inv)
	}
	return printConfig(out, inv.config)
}

// printConfig writes the effective settings as a settings file: every value with
// its origin behind it, secrets masked.
func printConfig(out io.Writer, c *Config) error {
	root := &yaml.Node{Kind: yaml.MappingNode}
	root.HeadComment = "The effective settings, each with where it comes from. Secrets are masked."
	unset := ""
	for _, f := range c.report.settings {
		if isOutboxField(c, f.Name) && len(c.Outboxes) > 0 {
			continue
		}
		if otherwise := f.Tag.Get("unset"); otherwise != "" && !c.report.set(f.Name) {
			unset = fmt.Sprintf("%s: %s # default", f.Name, otherwise) // given with no value, it would mean something else
			continue
		}
		value := valueNode(f.Target, f.Tag.Get("secret"))
		value.LineComment = c.report.origin(f.Name)
		if f.Name == "postgres" && c.Postgres == "" {
			value.LineComment += ": " + c.connection
		}
		key := keyNode(f.Name)
		key.HeadComment, unset = unset, ""
		root.Content = append(root.Content, key, value)
	}
	if len(c.Outboxes) > 0 {
		key := keyNode("outboxes")
		root.Content = append(root.Content, key, c.outboxesNode())
	}
	text, err := yaml.Dump(root)
	if err != nil {
		return fmt.Errorf("print the configuration: %w", err)
	}
	_, err = out.Write(text)
	return err
}

func isOutboxField(c *Config, name string) bool {
	for _, f := range outboxFields(&c.Outbox) {
		if f.name == name {
			return true
		}
	}
	return false
}

func (c *Config) outboxesNode() *yaml.Node {
	list := &yaml.Node{Kind: yaml.SequenceNode}
	for i := range c.Outboxes {
		item := &yaml.Node{Kind: yaml.MappingNode}
		for _, f := range outboxFields(&c.Outboxes[i]) {
			if f.value.IsZero() {
				continue
			}
			value := valueNode(f.value, "")
			value.LineComment = c.report.origin(fmt.Sprintf("outboxes[%d].%s", i, f.name))
			item.Content = append(item.Content, keyNode(f.name), value)
		}
		list.Content = append(list.Content, item)
	}
	return list
}

func keyNode(name string) *yaml.Node {
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: name}
}

func valueNode(v reflect.Value, secret string) *yaml.Node {
	if list, ok := v.Interface().([]string); ok {
		node := &yaml.Node{Kind: yaml.SequenceNode, Style: yaml.FlowStyle}
		for _, item := range list {
			node.Content = append(node.Content, keyNode(item))
		}
		return node
	}
	node := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: mask(secret, formatValue(v))}
	switch v.Interface().(type) {
	case bool:
		node.Tag = "!!bool"
	case int:
		node.Tag = "!!int"
	}
	return node
}
