package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/url"
	"runtime/debug"
	"strings"
	"time"
)

// What follows is CycloneDX 1.6, as far as it is used:
// https://cyclonedx.org/docs/1.6/json/

type bom struct {
	Format       string       `json:"bomFormat"`
	SpecVersion  string       `json:"specVersion"`
	SerialNumber string       `json:"serialNumber"`
	Version      int          `json:"version"`
	Metadata     metadata     `json:"metadata"`
	Components   []component  `json:"components"`
	Dependencies []dependency `json:"dependencies"`
}

type metadata struct {
	Timestamp string    `json:"timestamp"`
	Component component `json:"component"`
}

type component struct {
	Ref        string     `json:"bom-ref"`
	Type       string     `json:"type"`
	Name       string     `json:"name"`
	Version    string     `json:"version"`
	PackageURL string     `json:"purl"`
	Licenses   []any      `json:"licenses,omitempty"`
	Hashes     []hash     `json:"hashes,omitempty"`
	Properties []property `json:"properties,omitempty"`
}

type hash struct {
	Algorithm string `json:"alg"`
	Content   string `json:"content"`
}

type property struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

type dependency struct {
	Ref       string   `json:"ref"`
	DependsOn []string `json:"dependsOn"`
}

const module = "github.com/walstream/walstream"

// bill of materials: the modules that were linked, the standard library among them.
func (b *binary) bill(version string) ([]byte, error) {
	sum := digest(b.content)
	self := component{
		Ref: packageURL(module, version), Type: "application", Name: "walstream", Version: version, PackageURL: packageURL(module, version),
		Licenses: []any{map[string]any{"license": map[string]string{"id": "Apache-2.0"}}},
		Hashes:   []hash{{"SHA-256", sum}},
		Properties: []property{
			{"walstream:os", b.os}, {"walstream:arch", b.arch}, {"walstream:revision", b.revision},
		},
	}
	bill := bom{
		Format: "CycloneDX", SpecVersion: "1.6", Version: 1,
		// One and the same for one and the same binary: a UUID of its hash (RFC 9562, version 8).
		SerialNumber: fmt.Sprintf("urn:uuid:%s-%s-8%s-8%s-%s", sum[:8], sum[8:12], sum[13:16], sum[17:20], sum[20:32]),
		Metadata:     metadata{b.at.UTC().Format(time.RFC3339), self},
		Components:   []component{library("std", strings.TrimPrefix(b.info.GoVersion, "go"), "")},
	}
	for _, m := range b.info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		bill.Components = append(bill.Components, libraryOf(m))
	}
	all := dependency{Ref: self.Ref}
	for _, c := range bill.Components {
		all.DependsOn = append(all.DependsOn, c.Ref)
	}
	bill.Dependencies = []dependency{all}
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	err := encoder.Encode(bill)
	return out.Bytes(), err
}

func libraryOf(m *debug.Module) component { return library(m.Path, m.Version, m.Sum) }

// library with its sum of go.sum, which is of a tree and no plain hash.
func library(path, version, sum string) component {
	c := component{Ref: packageURL(path, version), Type: "library", Name: path, Version: version, PackageURL: packageURL(path, version)}
	if sum != "" {
		c.Properties = []property{{"go:sum", sum}}
	}
	return c
}

// packageURL is https://github.com/package-url/purl-spec for Go.
func packageURL(path, version string) string {
	return "pkg:golang/" + path + "@" + strings.ReplaceAll(url.PathEscape(version), "+", "%2B")
}
