package registry

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/twmb/avro"
	"github.com/twmb/franz-go/pkg/sr"

	"github.com/walstream/walstream/pkg/outbox"
)

// Framer frames values by one schema.
type Framer struct {
	id     int
	prefix []byte
	check  func(value []byte) error // nil: none was asked for
}

// ID of the schema.
func (f *Framer) ID() int { return f.id }

// Prefix goes before the value. It is not to be changed.
func (f *Framer) Prefix() []byte { return f.prefix }

// Check says why the value does not fit the schema, when that was asked for. It
// never quotes the value.
func (f *Framer) Check(value []byte) error {
	if f.check == nil {
		return nil
	}
	if err := f.check(value); err != nil {
		return fmt.Errorf("the value does not fit schema id %d: %s", f.id, shortened(err.Error()))
	}
	return nil
}

// unusable is a schema that was found, and that nothing can be done with.
type unusable struct{ err error }

func (e *unusable) Error() string { return shortened(e.err.Error()) }

// newFramer reads the schema as far as it is needed.
func (r *Registry) newFramer(ctx context.Context, id int, wanted outbox.Schema, found sr.Schema) (*Framer, error) {
	f := &Framer{id: id}
	var index []int
	var err error
	if wanted.Format == outbox.SchemaProtobuf {
		index = []int{0}
	}
	if wanted.Check || wanted.Message != "" {
		var parts []part
		if parts, err = r.references(ctx, found, map[string]bool{}, 0); err != nil {
			return nil, err
		}
		switch wanted.Format {
		case outbox.SchemaAvro:
			f.check, err = avroCheck(found.Schema, parts)
		case outbox.SchemaJSON:
			f.check, err = jsonCheck(found.Schema, parts)
		default:
			index, f.check, err = protobufCheck(ctx, found.Schema, parts, wanted.Message)
		}
		if err != nil {
			return nil, &unusable{err}
		}
		if !wanted.Check {
			f.check = nil
		}
	}
	f.prefix, err = new(sr.ConfluentHeader).AppendEncode(nil, id, index)
	return f, err
}

// part is a schema that another one refers to, by a name.
type part struct{ name, text string }

// maxReferences deep: what is deeper refers to itself.
const maxReferences = 32

// references of a schema, each behind those that it needs itself.
func (r *Registry) references(ctx context.Context, s sr.Schema, seen map[string]bool, depth int) (parts []part, err error) {
	if depth > maxReferences {
		return nil, &unusable{errors.New("its references go in a circle")}
	}
	for _, ref := range s.References {
		if seen[ref.Name] {
			continue
		}
		seen[ref.Name] = true
		found, err := r.client.SchemaByVersion(ctx, ref.Subject, ref.Version)
		if err != nil {
			return nil, fmt.Errorf("its reference %s (%s): %w", ref.Name, Name(outbox.SchemaAt{Subject: ref.Subject, Version: ref.Version}), err)
		}
		needed, err := r.references(ctx, found.Schema, seen, depth+1)
		if err != nil {
			return nil, err
		}
		parts = append(append(parts, needed...), part{ref.Name, found.Schema.Schema})
	}
	return parts, nil
}

func avroCheck(text string, parts []part) (func([]byte) error, error) {
	var cache avro.SchemaCache
	for _, p := range parts {
		if _, err := cache.Parse(p.text); err != nil {
			return nil, fmt.Errorf("reference %s: %w", p.name, err)
		}
	}
	schema, err := cache.Parse(text)
	if err != nil {
		return nil, err
	}
	return func(value []byte) error {
		var decoded any
		rest, err := schema.Decode(value, &decoded)
		if err == nil && len(rest) > 0 {
			err = fmt.Errorf("%d of its %d bytes are left over", len(rest), len(value))
		}
		return err
	}, nil
}

// schemaURL is where schemas stand as the JSON schema library sees it; nothing is
// ever loaded from there, or from elsewhere.
const schemaURL = "registry:///"

type noLoader struct{}

func (noLoader) Load(url string) (any, error) {
	return nil, fmt.Errorf("%s is not among the schema's references", strings.TrimPrefix(url, schemaURL))
}

func jsonCheck(text string, parts []part) (func([]byte) error, error) {
	const main = schemaURL + "schema.json"
	compiler := jsonschema.NewCompiler()
	compiler.DefaultDraft(jsonschema.Draft7) // as Confluent's validator has it
	compiler.UseLoader(noLoader{})
	for _, p := range append(parts, part{main, text}) {
		document, err := jsonschema.UnmarshalJSON(strings.NewReader(p.text))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", p.name, err)
		}
		url := p.name
		if !strings.Contains(url, ":") {
			url = schemaURL + strings.TrimPrefix(url, "/")
		}
		if err := compiler.AddResource(url, document); err != nil {
			return nil, fmt.Errorf("%s: %w", p.name, err)
		}
	}
	schema, err := compiler.Compile(main)
	if err != nil {
		return nil, err
	}
	return func(value []byte) error {
		document, err := jsonschema.UnmarshalJSON(bytes.NewReader(value))
		if err != nil {
			return errors.New("it is not JSON")
		}
		err = schema.Validate(document)
		if invalid, ok := errors.AsType[*jsonschema.ValidationError](err); ok {
			return whereInvalid(invalid)
		}
		return err
	}, nil
}

// whereInvalid names place and rule; what stands there is the value's.
func whereInvalid(e *jsonschema.ValidationError) error {
	for len(e.Causes) > 0 {
		e = e.Causes[0]
	}
	return fmt.Errorf("at /%s it breaks the rule %s", strings.Join(e.InstanceLocation, "/"), strings.Join(e.ErrorKind.KeywordPath(), "/"))
}
