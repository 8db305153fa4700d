package registry

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/sr"

	"github.com/walstream/walstream/pkg/outbox"
)

func TestLook(t *testing.T) {
	fake, r := open(t)
	if err := r.Reach(t.Context()); err != nil {
		t.Fatal(err)
	}
	id := seed(t, fake, "has", avroText, sr.TypeAvro)
	seed(t, fake, "other", `{"type":"record","name":"Other","fields":[]}`, sr.TypeAvro)
	for _, c := range []struct {
		name   string
		schema outbox.Schema
		at     outbox.SchemaAt
		want   string
		fails  bool
	}{
		{"found", outbox.Schema{Format: "avro"}, outbox.SchemaAt{Subject: "has"}, "schema id", false},
		{"by id", outbox.Schema{Format: "avro"}, outbox.SchemaAt{ID: id}, "schema id", false},
		{"unknown", outbox.Schema{Format: "avro"}, outbox.SchemaAt{Subject: "none"}, "is not in the schema registry", true},
		{"of another format", outbox.Schema{Format: "json"}, outbox.SchemaAt{Subject: "has"}, "is a schema in avro", true},
		{"registered", outbox.Schema{Format: "avro", Text: avroText}, outbox.SchemaAt{Subject: "has"}, "is registered: schema id", false},
		{"to be registered", outbox.Schema{Format: "avro", Text: avroText}, outbox.SchemaAt{Subject: "none"}, "not in the registry yet", false},
		{"to be a new version", outbox.Schema{Format: "avro", Text: avroText}, outbox.SchemaAt{Subject: "other"}, "fits the subject's latest", false},
		{"no schema", outbox.Schema{Format: "avro", Text: "nonsense", Check: true}, outbox.SchemaAt{Subject: "none"}, "cannot be framed by the schema of schema-file", true},
	} {
		said, err := r.Look(t.Context(), c.schema, c.at)
		if err != nil {
			said = err.Error()
		}
		if (err != nil) != c.fails || !strings.Contains(said, c.want) {
			t.Errorf("%s: %q (%v), want %q", c.name, said, err, c.want)
		}
	}
	if subjects, err := r.client.Subjects(t.Context()); err != nil || len(subjects) != 2 {
		t.Errorf("looking has changed the registry: %v, %v", subjects, err)
	}
}

// srfake finds every schema compatible.
func TestLookAtAnIncompatibleSchema(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		w.Header().Set("Content-Type", "application/vnd.schemaregistry.v1+json")
		switch {
		case q.URL.Path == "/subjects/s/versions/latest":
			_, _ = w.Write([]byte(`{"subject":"s","version":1,"id":7,"schema":"\"string\""}`))
		case strings.HasPrefix(q.URL.Path, "/compatibility/subjects/s/versions/"):
			_, _ = w.Write([]byte(`{"is_compatible":false,"messages":["field amount is gone"]}`))
		default:
			w.WriteHeader(http.StatusNotFound)
			_, _ = w.Write([]byte(`{"error_code":40403,"message":"Schema not found"}`))
		}
	}))
	defer server.Close()
	r, err := New(Config{URLs: []string{server.URL}})
	if err != nil {
		t.Fatal(err)
	}
	_, err = r.Look(t.Context(), outbox.Schema{Format: "avro", Text: avroText}, outbox.SchemaAt{Subject: "s"})
	if err == nil || !strings.Contains(err.Error(), "field amount is gone") || !strings.Contains(err.Error(), "mend the schema") {
		t.Error(err)
	}
}
