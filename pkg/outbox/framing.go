package outbox

import (
	"errors"
	"fmt"
	"strconv"
)

// framing of a table's values by a schema.
type framing struct {
	schema               Schema
	subject, id, version *template
}

func (b *builder) addSchema() {
	c := b.config
	if c.SchemaFormat == "" {
		for _, s := range []struct {
			name string
			set  bool
		}{
			{"schema-subject", c.SchemaSubject != ""},
			{"schema-version", c.SchemaVersion != ""},
			{"schema-id", c.SchemaID != ""},
			{"schema-file", c.SchemaText != ""},
			{"schema-message", c.SchemaMessage != ""},
			{"schema-check", c.SchemaCheck},
		} {
			if s.set {
				b.fault(errors.New(s.name + " has no effect without schema-format"))
			}
		}
		return
	}
	subject := c.SchemaSubject
	switch {
	case c.SchemaID != "" && (subject != "" || c.SchemaVersion != "" || c.SchemaText != ""):
		b.fault(errors.New("schema-id does not go with schema-subject, schema-version or schema-file: it names one schema by itself"))
	case c.SchemaVersion != "" && c.SchemaText != "":
		b.fault(errors.New("schema-version does not go with schema-file: the file's schema is registered, and frames the values"))
	case c.SchemaMessage != "" && c.SchemaFormat != SchemaProtobuf:
		b.fault(errors.New("schema-message has no effect without schema-format protobuf"))
	case c.Envelope == CloudEventsStructured:
		b.fault(errors.New("schema-format does not go with envelope cloudevents-structured, whose value is JSON from its first byte"))
	case c.SchemaFormat != SchemaJSON && (len(c.EnvelopeColumns) > 0 || c.ValueFormat == FormatJSON):
		b.fault(errors.New("schema-format " + c.SchemaFormat + " does not go with envelope-columns or value-format json, which make JSON of the value"))
	case c.SchemaID == "" && subject == "":
		subject = "{" + topicPlaceholder + "}-value"
	}
	b.framing = &framing{
		schema:  Schema{Format: c.SchemaFormat, Text: c.SchemaText, Message: c.SchemaMessage, Check: c.SchemaCheck},
		subject: b.template("schema-subject", subject),
		id:      b.number("schema-id", c.SchemaID), version: b.number("schema-version", c.SchemaVersion),
	}
}

// number reads a template that makes one.
func (b *builder) number(setting, text string) *template {
	t := b.template(setting, text)
	if t != nil && t.fixed != nil {
		if _, err := numberOf(t.fixed); err != nil {
			b.fault(fmt.Errorf("%s %q: %w", setting, text, err))
		}
	}
	return t
}

var (
	errNoSchema = errors.New("is NULL or empty, so nothing says which schema the value has")
	errNoNumber = errors.New("is no number of a schema or version: they count from 1")
)

func numberOf(text []byte) (int, error) {
	n, err := strconv.ParseInt(string(text), 10, 32)
	if err != nil || n < 1 {
		return 0, errNoNumber
	}
	return int(n), nil
}

// fillSchema says which schema frames the value.
func (r *rowMapper) fillSchema(e *Event) (err error) {
	f := r.plan.table.framing
	e.Schema, e.SchemaAt = &f.schema, SchemaAt{}
	subject, null, err := r.fillTemplate(f.subject, e.Topic)
	switch {
	case err != nil:
		return err
	case null >= 0:
		return r.bad(null, errNoSchema)
	case f.subject != nil && len(subject) == 0:
		return r.badTemplate(f.subject, errNoSchema)
	}
	e.SchemaAt.Subject = r.topics.of(subject)
	if e.SchemaAt.ID, err = r.number(f.id); err == nil {
		e.SchemaAt.Version, err = r.number(f.version)
	}
	return err
}

func (r *rowMapper) number(t *template) (int, error) {
	text, null, err := r.fillTemplate(t, "")
	switch {
	case t == nil || err != nil:
		return 0, err
	case null >= 0:
		return 0, r.bad(null, errNoSchema)
	}
	n, err := numberOf(text)
	if err != nil {
		return 0, r.badTemplate(t, err)
	}
	return n, nil
}

// Schemas that are named by settings alone, so that they can be looked up before
// any row comes.
func (m *Mapping) Schemas() (schemas []Schema, at []SchemaAt) {
	for _, n := range m.SchemaNeeds() {
		if n.Known {
			schemas, at = append(schemas, n.Schema), append(at, n.At)
		}
	}
	return schemas, at
}

// SchemaNeed is the schema of a table's values.
type SchemaNeed struct {
	Table  string
	Schema Schema
	At     SchemaAt
	Known  bool // else the rows say which one it is
}

// SchemaNeeds of the tables whose values are framed.
func (m *Mapping) SchemaNeeds() (needs []SchemaNeed) {
	for _, t := range m.tables {
		f := t.framing
		if f == nil {
			continue
		}
		where, known := SchemaAt{}, true
		if f.subject != nil {
			where.Subject, known = f.subject.constant(t.constantTopic())
		}
		for _, n := range []struct {
			from *template
			to   *int
		}{{f.id, &where.ID}, {f.version, &where.Version}} {
			switch {
			case n.from == nil:
			case n.from.fixed == nil:
				known = false
			default:
				*n.to, _ = numberOf(n.from.fixed)
			}
		}
		needs = append(needs, SchemaNeed{Table: t.full, Schema: f.schema, At: where, Known: known})
	}
	return needs
}

// constantTopic of all rows; empty when a column or a transform has a say.
func (t *table) constantTopic() string {
	if t.single[partTopic] >= 0 || t.route != nil || len(t.pattern) > 0 || t.transform != nil {
		return ""
	}
	return t.topic
}

// constant is the template's text when no column has a say.
func (t *template) constant(topic string) (string, bool) {
	text := ""
	for i, piece := range t.parts {
		text += piece.text
		switch {
		case piece.column == "":
		case t.at[i] >= 0 || topic == "":
			return "", false
		default:
			text += topic
		}
	}
	return text, true
}
