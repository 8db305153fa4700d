package registry

import (
	"crypto/tls"
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/twmb/avro"
	"github.com/twmb/franz-go/pkg/sr"
	"github.com/twmb/franz-go/pkg/sr/srfake"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/walstream/walstream/internal/credential"
	"github.com/walstream/walstream/internal/testenv"
	"github.com/walstream/walstream/pkg/outbox"
)

const (
	avroText = `{"type":"record","name":"Deposit","namespace":"bank","fields":[{"name":"account","type":"string"},{"name":"amount","type":"long"}]}`
	jsonText = `{"type":"object","required":["amount"],"properties":{"amount":{"type":"integer"}}}`
	protoV1  = `syntax = "proto3"; package bank; import "google/protobuf/timestamp.proto";
message Account { string id = 1; }
message Deposit { Account account = 1; int64 amount = 2; google.protobuf.Timestamp at = 3; message Note { string text = 1; } repeated Note notes = 4; map<string, Note> more = 5; }`
)

func avroValue(t testing.TB) []byte {
	t.Helper()
	value, err := avro.MustParse(avroText).Encode(map[string]any{"account": "acc-7", "amount": int64(12)})
	if err != nil {
		t.Fatal(err)
	}
	return value
}

// field of a protobuf message, of bytes or of a number.
func field(number protowire.Number, content any) []byte {
	switch v := content.(type) {
	case int:
		return protowire.AppendVarint(protowire.AppendTag(nil, number, protowire.VarintType), uint64(v))
	case string:
		return protowire.AppendString(protowire.AppendTag(nil, number, protowire.BytesType), v)
	}
	panic("of another type")
}

func open(t testing.TB, options ...srfake.Option) (*srfake.Registry, *Registry) {
	t.Helper()
	fake := srfake.New(options...)
	t.Cleanup(fake.Close)
	r, err := New(Config{URLs: []string{fake.URL()}, Version: "test"})
	if err != nil {
		t.Fatal(err)
	}
	return fake, r
}

func seed(t testing.TB, fake *srfake.Registry, subject, text string, kind sr.SchemaType, refs ...sr.SchemaReference) int {
	t.Helper()
	id, _, err := fake.RegisterSchema(subject, sr.Schema{Schema: text, Type: kind, References: refs})
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func TestValuesAreChecked(t *testing.T) {
	fake, r := open(t)
	seed(t, fake, "avro", avroText, sr.TypeAvro)
	seed(t, fake, "json", jsonText, sr.TypeJSON)
	seed(t, fake, "proto", protoV1, sr.TypeProtobuf)
	account := field(1, "acc-7")
	deposit := append(field(1, string(account)), field(2, 12)...)
	for _, c := range []struct {
		format, message string
		value           []byte
		want            string // empty: it fits
	}{
		{"avro", "", avroValue(t), ""},
		{"avro", "", append(avroValue(t), 0), "1 of its 8 bytes are left over"},
		{"avro", "", avroValue(t)[:4], "does not fit schema id"},
		{"avro", "", nil, "does not fit schema id"},
		{"json", "", []byte(`{"amount": 12, "more": []}`), ""},
		{"json", "", []byte(`{"amount": "secret"}`), "at /amount it breaks the rule type"},
		{"json", "", []byte(`{}`), "at / it breaks the rule required"},
		{"json", "", []byte(`secret`), "it is not JSON"},
		{"protobuf", "", account, ""},
		{"protobuf", "", nil, ""}, // a message with nothing set
		{"protobuf", "", deposit, "its field 2 is not in message bank.Account"},
		{"protobuf", "bank.Deposit", deposit, ""},
		{"protobuf", "bank.Deposit", account, "cannot parse"},
		{"protobuf", "bank.Deposit", field(2, "x"), "its field 2 is not in message bank.Deposit, or of another type"},
		{"protobuf", "bank.Deposit", field(4, string(field(9, 1))), "its field 9 is not in message bank.Deposit.Note"},
		{"protobuf", "bank.Deposit", field(5, string(append(field(1, "k"), field(2, string(field(8, 1)))...))), "its field 8 is not in message bank.Deposit.Note"},
		{"protobuf", "bank.Deposit.Note", field(1, "\xff"), "invalid UTF-8"},
	} {
		subject := strings.TrimSuffix(c.format, "buf")
		f, err := r.Find(t.Context(), outbox.Schema{Format: c.format, Message: c.message, Check: true}, outbox.SchemaAt{Subject: subject})
		if err != nil {
			t.Fatal(err)
		}
		err = f.Check(c.value)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s %s %q: got %v, want %q", c.format, c.message, c.value, err, c.want)
		}
		if err != nil && strings.Contains(err.Error(), "secret") {
			t.Errorf("the error quotes the value: %v", err)
		}
	}
}

// TestPrefixes: the same bytes as franz-go's own encoder writes.
func TestPrefixes(t *testing.T) {
	fake, r := open(t)
	fake.SeedSchema("avro", 1, 70_000, sr.Schema{Schema: avroText})
	fake.SeedSchema("proto", 1, 2, sr.Schema{Schema: protoV1, Type: sr.TypeProtobuf})
	for _, c := range []struct {
		schema outbox.Schema
		at     outbox.SchemaAt
		want   string
	}{
		{outbox.Schema{Format: "avro"}, outbox.SchemaAt{Subject: "avro"}, "\x00\x00\x01\x11\x70"},
		{outbox.Schema{Format: "avro"}, outbox.SchemaAt{Subject: "avro", Version: 1}, "\x00\x00\x01\x11\x70"},
		{outbox.Schema{Format: "avro"}, outbox.SchemaAt{ID: 70_000}, "\x00\x00\x01\x11\x70"},
		{outbox.Schema{Format: "protobuf"}, outbox.SchemaAt{Subject: "proto"}, "\x00\x00\x00\x00\x02\x00"},
		{outbox.Schema{Format: "protobuf", Message: "bank.Account"}, outbox.SchemaAt{Subject: "proto"}, "\x00\x00\x00\x00\x02\x00"},
		{outbox.Schema{Format: "protobuf", Message: "bank.Deposit"}, outbox.SchemaAt{Subject: "proto"}, "\x00\x00\x00\x00\x02\x02\x02"},
		{outbox.Schema{Format: "protobuf", Message: "bank.Deposit.Note"}, outbox.SchemaAt{Subject: "proto"}, "\x00\x00\x00\x00\x02\x04\x02\x00"},
	} {
		f, err := r.Find(t.Context(), c.schema, c.at)
		if err != nil {
			t.Fatal(err)
		}
		if got := string(f.Prefix()); got != c.want {
			t.Errorf("%+v: got %q, want %q", c, got, c.want)
		}
		if err := f.Check([]byte("anything")); err != nil {
			t.Errorf("checked without being asked to: %v", err)
		}
		id, _, err := new(sr.ConfluentHeader).DecodeID(f.Prefix())
		if err != nil || id != f.ID() {
			t.Errorf("franz-go reads id %d, want %d (%v)", id, f.ID(), err)
		}
	}
}

func TestReferences(t *testing.T) {
	fake, r := open(t)
	seed(t, fake, "account", `{"type":"record","name":"Account","namespace":"bank","fields":[{"name":"id","type":"string"}]}`, sr.TypeAvro)
	seed(t, fake, "avro", `{"type":"record","name":"Open","namespace":"bank","fields":[{"name":"account","type":"bank.Account"}]}`, sr.TypeAvro,
		sr.SchemaReference{Name: "bank.Account", Subject: "account", Version: 1})
	seed(t, fake, "amount", `{"type":"integer"}`, sr.TypeJSON)
	seed(t, fake, "json", `{"properties":{"amount":{"$ref":"amount.json"}}}`, sr.TypeJSON, sr.SchemaReference{Name: "amount.json", Subject: "amount", Version: 1})
	seed(t, fake, "a", `syntax = "proto3"; message A { string id = 1; }`, sr.TypeProtobuf)
	seed(t, fake, "proto", `syntax = "proto3"; import "a.proto"; message B { A a = 1; }`, sr.TypeProtobuf, sr.SchemaReference{Name: "a.proto", Subject: "a", Version: 1})
	for _, c := range []struct{ format, subject, good, bad string }{
		{"avro", "avro", "\x02a", "\x02ab"},
		{"json", "json", `{"amount": 1}`, `{"amount": "x"}`},
		{"protobuf", "proto", string(field(1, string(field(1, "a")))), string(field(1, string(field(2, "a"))))},
	} {
		f, err := r.Find(t.Context(), outbox.Schema{Format: c.format, Check: true}, outbox.SchemaAt{Subject: c.subject})
		if err != nil {
			t.Errorf("%s: %v", c.format, err)
			continue
		}
		if good, bad := f.Check([]byte(c.good)), f.Check([]byte(c.bad)); good != nil || bad == nil {
			t.Errorf("%s: good %v, bad %v", c.format, good, bad)
		}
	}
	seed(t, fake, "alone", `{"$ref":"http://127.0.0.1/elsewhere.json"}`, sr.TypeJSON)
	_, err := r.Find(t.Context(), outbox.Schema{Format: "json", Check: true}, outbox.SchemaAt{Subject: "alone"})
	if err == nil || !strings.Contains(err.Error(), "is not among the schema's references") {
		t.Errorf("a schema that points elsewhere: %v", err)
	}
}

func TestRegisters(t *testing.T) {
	fake, r := open(t)
	ours := outbox.Schema{Format: "avro", Text: avroText, Check: true}
	first, err := r.Find(t.Context(), ours, outbox.SchemaAt{Subject: "deposits-value"})
	if err != nil {
		t.Fatal(err)
	}
	kept, ok := fake.GetSchema("deposits-value", 1)
	if !ok || kept.ID != first.ID() || kept.Schema.Schema != avroText {
		t.Errorf("the registry has %+v", kept)
	}
	if err := first.Check(avroValue(t)); err != nil {
		t.Error(err)
	}
	_, second := open(t) // a process that knows nothing
	second.client = r.client
	if again, err := second.Find(t.Context(), ours, outbox.SchemaAt{Subject: "deposits-value"}); err != nil || again.ID() != first.ID() {
		t.Errorf("registered once more: %v, %v", again, err)
	}
}

// TestLatestIsAskedAnew, and what never changes is not.
func TestLatestIsAskedAnew(t *testing.T) {
	fake, r := open(t)
	seed(t, fake, "s", jsonText, sr.TypeJSON)
	find := func(version int) int {
		f, err := r.Find(t.Context(), outbox.Schema{Format: "json"}, outbox.SchemaAt{Subject: "s", Version: version})
		if err != nil {
			t.Fatal(err)
		}
		return f.ID()
	}
	latest, one := find(0), find(1)
	newer := seed(t, fake, "s", `{"type":"object"}`, sr.TypeJSON)
	if latest != one || find(0) != newer || find(1) != one {
		t.Errorf("latest %d, version 1 %d; then %d and %d", latest, one, find(0), find(1))
	}
	fake.Intercept(func(http.ResponseWriter, *http.Request) bool { t.Error("asked once more"); return false })
	find(1)
}

func TestWhatTheRegistrySays(t *testing.T) {
	answer := func(code int, body string) func(*testing.T) *Registry {
		return func(t *testing.T) *Registry {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(code)
				_, _ = w.Write([]byte(body))
			}))
			t.Cleanup(server.Close)
			r, err := New(Config{URLs: []string{server.URL}, User: "u", Password: password("hush")})
			if err != nil {
				t.Fatal(err)
			}
			return r
		}
	}
	fake := func(t *testing.T) *Registry {
		fake, r := open(t)
		seed(t, fake, "s", jsonText, sr.TypeJSON)
		seed(t, fake, "odd", `{"type":"nope"}`, sr.TypeJSON)
		return r
	}
	at, check := outbox.SchemaAt{Subject: "s"}, outbox.Schema{Format: "json", Check: true}
	for _, c := range []struct {
		name   string
		r      func(*testing.T) *Registry
		schema outbox.Schema
		at     outbox.SchemaAt
		kind   string
		want   string
	}{
		{"no subject", fake, check, outbox.SchemaAt{Subject: "nope"}, "unknown", `subject "nope" is not in the schema registry`},
		{"no version", fake, check, outbox.SchemaAt{Subject: "s", Version: 9}, "unknown", `version 9 of subject "s" is not in`},
		{"no id", fake, check, outbox.SchemaAt{ID: 99}, "unknown", "schema id 99 is not in"},
		{"another format", fake, outbox.Schema{Format: "avro"}, at, "unknown", `is a schema in json, and schema-format says avro`},
		{"no schema", fake, check, outbox.SchemaAt{Subject: "odd"}, "unknown", "cannot be used"},
		{"no message", func(t *testing.T) *Registry {
			fake, r := open(t)
			seed(t, fake, "s", protoV1, sr.TypeProtobuf)
			return r
		}, outbox.Schema{Format: "protobuf", Message: "bank.Nope"}, at, "unknown", `it has no message "bank.Nope" (schema-message); its own are bank.Account, bank.Deposit`},
		{"no rights", answer(403, `{"error_code":40301,"message":"not you"}`), check, at, "setup", "it answers 403: not you; check registry-user"},
		{"no login", answer(401, ``), check, at, "setup", "it answers 401"},
		{"no registry", answer(404, strings.Repeat("<html>", 1000)), check, at, "setup", "check that registry-url"},
		{"incompatible", answer(409, `{"error_code":409,"message":"incompatible"}`), outbox.Schema{Format: "avro", Text: avroText}, at, "setup", "cannot be registered"},
		{"overloaded", answer(429, ``), check, at, "wait", "it answers 429"},
		{"down", answer(503, `no backend`), check, at, "wait", "it answers 503: no backend"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := c.r(t).Find(t.Context(), c.schema, c.at)
			_, unknown := errors.AsType[*UnknownError](err)
			_, setup := errors.AsType[*SetupError](err)
			kind := map[bool]string{true: "unknown"}[unknown] + map[bool]string{true: "setup"}[setup]
			if kind == "" {
				kind = "wait"
			}
			if err == nil || kind != c.kind || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "hush") || len(err.Error()) > 700 {
				t.Errorf("got %s: %v\nwant %s: %s", kind, err, c.kind, c.want)
			}
		})
	}
}

// password that stays the same.
func password(text string) func() (string, error) {
	return func() (string, error) { return text, nil }
}

func TestLogins(t *testing.T) {
	for want, c := range map[string]Config{
		"Basic dTpw": {User: "u", Password: password("p")}, "Bearer p": {Password: password("p")}, "": {},
	} {
		var got string
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			got = r.Header.Get("Authorization")
			_, _ = w.Write([]byte(`{"subject":"s","id":7,"version":1,"schema":"\"string\""}`))
		}))
		c.URLs = []string{"http://127.0.0.1:1", server.URL} // the first is down
		r, err := New(c)
		if err != nil {
			t.Fatal(err)
		}
		f, err := r.Find(t.Context(), outbox.Schema{Format: "avro"}, outbox.SchemaAt{Subject: "s"})
		server.Close()
		if err != nil || f.ID() != 7 || got != want {
			t.Errorf("got %q, want %q: %v", got, want, err)
		}
	}
}

// TestRenewedLogin: password, authorities and the client's certificate are those
// of the moment, and what cannot be read waits.
func TestRenewedLogin(t *testing.T) {
	old, next := testenv.NewAuthority(t), testenv.NewAuthority(t)
	directory := t.TempDir()
	serve := func(a *testenv.Authority) (*httptest.Server, *string) {
		var login string
		server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			login = r.Header.Get("Authorization")
			_, _ = w.Write([]byte(`{"subject":"s","id":7,"version":1,"schema":"\"string\""}`))
		}))
		server.TLS = a.Server(t, testenv.Leaf{Name: "registry"})
		server.TLS.ClientAuth, server.TLS.ClientCAs = tls.RequireAndVerifyClientCert, a.Pool()
		server.Config.ErrorLog = log.New(io.Discard, "", 0)
		server.StartTLS()
		t.Cleanup(server.Close)
		return server, &login
	}
	files := credential.TLSFiles{Prefix: "registry-tls", CA: old.WriteCA(t, directory)}
	files.Cert, files.Key = old.Write(t, directory, testenv.Leaf{Name: "walstream"})
	secret := filepath.Join(directory, "password")
	write := func(text string) {
		if err := os.WriteFile(secret, []byte(text+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	first, firstLogin := serve(old)
	second, secondLogin := serve(next)
	r, err := New(Config{URLs: []string{first.URL, second.URL}, TLS: files.Client, Password: func() (string, error) { return credential.Secret("registry-password-file", secret) }})
	if err != nil {
		t.Fatal(err)
	}
	find := func() error {
		_, err := r.Find(t.Context(), outbox.Schema{Format: "avro"}, outbox.SchemaAt{Subject: "s"})
		return err
	}
	if err := find(); err == nil || !strings.Contains(err.Error(), "registry-password-file cannot be read") {
		t.Errorf("without the file: %v", err)
	}
	write("one")
	if err := find(); err != nil || *firstLogin != "Bearer one" {
		t.Errorf("logged in by %q: %v", *firstLogin, err)
	}
	first.Close()
	if err := find(); err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("the other authority is trusted: %v", err)
	}
	write("two")
	next.WriteCA(t, directory)
	next.Write(t, directory, testenv.Leaf{Name: "walstream"})
	if err := find(); err != nil || *secondLogin != "Bearer two" {
		t.Errorf("renewed, logged in by %q: %v", *secondLogin, err)
	}
}
