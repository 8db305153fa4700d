package main

import (
	"fmt"
	"io"
	"reflect"

	"go.yaml.in/yaml/v4"
)

// printConfig writes the effective settings as a settings file: every value with
// its origin behind it, secrets masked.
func printConfig(out io.Writer, c *Config) error {
	root := &yaml.Node{Kind: yaml.MappingNode}
	root.HeadComment = "The effective settings, each with where it comes from. Secrets are masked."
	for _, f := range c.report.settings {
		if isOutboxField(c, f.Name) && len(c.Outboxes) > 0 {
			continue
		}
		value := valueNode(f.Target, f.Tag.Get("secret"))
		value.LineComment = c.report.origin(f.Name)
		if f.Name == "postgres" && c.Postgres == "" {
			value.LineComment += ": " + c.connection
		}
		root.Content = append(root.Content, keyNode(f.Name), value)
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
