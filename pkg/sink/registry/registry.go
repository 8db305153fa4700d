package registry

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/sr"

	"github.com/walstream/walstream/pkg/outbox"
)

// Config of the connection to a registry.
type Config struct {
	URLs []string // tried in turn
	User string
	// Password of the user, asked for at each request; without a user it is a bearer
	// token. nil: none.
	Password func() (string, error)
	// TLS is asked for at each request; nil: the system's authorities.
	TLS     func() (*tls.Config, error)
	Version string // of walstream, for the registry's log
}

// Registry looks schemas up. It may be used by several goroutines.
type Registry struct {
	client *sr.Client
	urls   string

	mu    sync.Mutex
	fixed map[wanted]*Framer // what never changes: ids, versions, and schemas of ours
}

type wanted struct {
	schema outbox.Schema
	at     outbox.SchemaAt
}

// fixedLimit bounds what is kept; a registry has some thousand schemas.
const fixedLimit = 10_000

// requestTimeout of one request: rows wait meanwhile, the loop does not.
const requestTimeout = 5 * time.Second

// New makes no connection yet.
func New(c Config) (*Registry, error) {
	var transport http.RoundTripper = http.DefaultTransport.(*http.Transport).Clone()
	if c.TLS != nil {
		transport = renewed(c.TLS)
	}
	options := []sr.ClientOpt{
		sr.URLs(c.URLs...), sr.UserAgent("walstream/" + c.Version),
		sr.HTTPClient(&http.Client{Transport: transport, Timeout: requestTimeout}),
	}
	if c.Password != nil {
		options = append(options, sr.PreReq(func(request *http.Request) error {
			password, err := c.Password()
			if err != nil {
				return err
			}
			if c.User == "" {
				request.Header.Set("Authorization", "Bearer "+password)
			} else {
				request.SetBasicAuth(c.User, password)
			}
			return nil
		}))
	}
	client, err := sr.NewClient(options...)
	if err != nil {
		return nil, fmt.Errorf("schema registry: %w", err)
	}
	return &Registry{client: client, urls: strings.Join(c.URLs, ","), fixed: map[wanted]*Framer{}}, nil
}

// renewed makes each request on a connection of its own with the TLS settings of
// that moment, by a proxy too. Lookups are rare: what they find is kept.
type renewed func() (*tls.Config, error)

func (current renewed) RoundTrip(request *http.Request) (*http.Response, error) {
	config, err := current()
	if err != nil {
		return nil, err
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.TLSClientConfig, transport.DisableKeepAlives = config, true
	return transport.RoundTrip(request)
}

// Find returns what frames the values of a schema. An error is an *UnknownError,
// or a *SetupError; any other may mend itself.
func (r *Registry) Find(ctx context.Context, schema outbox.Schema, at outbox.SchemaAt) (*Framer, error) {
	key := wanted{schema, at}
	r.mu.Lock()
	framer := r.fixed[key]
	r.mu.Unlock()
	if framer != nil {
		return framer, nil
	}
	framer, err := r.find(ctx, schema, at)
	if err != nil {
		return nil, err
	}
	if Fixed(schema, at) {
		r.mu.Lock()
		if len(r.fixed) >= fixedLimit {
			clear(r.fixed)
		}
		r.fixed[key] = framer
		r.mu.Unlock()
	}
	return framer, nil
}

// Fixed: what Find says now it says for ever.
func Fixed(schema outbox.Schema, at outbox.SchemaAt) bool {
	return at.ID != 0 || at.Version != 0 || schema.Text != ""
}

func (r *Registry) find(ctx context.Context, schema outbox.Schema, at outbox.SchemaAt) (*Framer, error) {
	id, found, err := r.ask(ctx, schema, at)
	if err != nil {
		return nil, r.explain(err, schema, at)
	}
	if got := found.Type.String(); !strings.EqualFold(got, schema.Format) {
		return nil, &UnknownError{At: at, Reason: fmt.Sprintf("is a schema in %s, and schema-format says %s", strings.ToLower(got), schema.Format)}
	}
	framer, err := r.newFramer(ctx, id, schema, found)
	if unfit, ok := errors.AsType[*unusable](err); ok {
		return nil, &UnknownError{At: at, Reason: "cannot be used: " + unfit.Error()}
	}
	if err != nil {
		return nil, r.explain(err, schema, at)
	}
	return framer, nil
}

// ask for the schema's id, and its text.
func (r *Registry) ask(ctx context.Context, schema outbox.Schema, at outbox.SchemaAt) (int, sr.Schema, error) {
	switch {
	case at.ID != 0:
		found, err := r.client.SchemaByID(ctx, at.ID)
		return at.ID, found, err
	case schema.Text != "":
		ours := sr.Schema{Schema: schema.Text}
		if err := ours.Type.UnmarshalText([]byte(strings.ToUpper(schema.Format))); err != nil {
			return 0, ours, err
		}
		id, err := r.client.RegisterSchema(ctx, at.Subject, ours, 0, 0)
		return id, ours, err
	}
	version := at.Version
	if version == 0 {
		version = -1 // the latest
	}
	found, err := r.client.SchemaByVersion(ctx, at.Subject, version)
	return found.ID, found.Schema, err
}

// UnknownError is a schema that the registry does not have, or that values cannot
// be framed by: what is wrong with a row that means it.
type UnknownError struct {
	At     outbox.SchemaAt
	Reason string
}

func (e *UnknownError) Error() string { return Name(e.At) + " " + e.Reason }

// SetupError is a registry that does not let us in, or not do what was set: a
// person has to change something.
type SetupError struct {
	Found  string
	Remedy string
}

func (e *SetupError) Error() string { return e.Found + "; " + e.Remedy }

// Name of a schema, for messages.
func Name(at outbox.SchemaAt) string {
	switch {
	case at.ID != 0:
		return fmt.Sprintf("schema id %d", at.ID)
	case at.Version != 0:
		return fmt.Sprintf("version %d of subject %q", at.Version, at.Subject)
	}
	return fmt.Sprintf("subject %q", at.Subject)
}

// explain says what a failed request means.
func (r *Registry) explain(err error, schema outbox.Schema, at outbox.SchemaAt) error {
	return r.explainAs(err, "look up "+Name(at), schema, at)
}

func (r *Registry) explainAs(err error, doing string, schema outbox.Schema, at outbox.SchemaAt) error {
	what := fmt.Sprintf("%s at the schema registry (%s)", doing, r.urls)
	var certificate *tls.CertificateVerificationError
	var record tls.RecordHeaderError
	if errors.As(err, &certificate) || errors.As(err, &record) {
		return &SetupError{Found: fmt.Sprintf("%s: the TLS handshake failed: %v", what, err), Remedy: "check registry-url and registry-tls-ca, -cert and -key"}
	}
	answer, ok := errors.AsType[*sr.ResponseError](err)
	if !ok {
		return fmt.Errorf("%s: %w", what, err)
	}
	told := fmt.Sprintf("%s: it answers %d: %s", what, answer.StatusCode, shortened(answer.Error()))
	switch code := answer.StatusCode; {
	case code == http.StatusNotFound && answer.ErrorCode/100 == http.StatusNotFound && schema.Text == "":
		return &UnknownError{At: at, Reason: "is not in the schema registry (" + shortened(answer.Error()) + "): register its schema, then start walstream again"}
	case code == http.StatusUnauthorized, code == http.StatusForbidden:
		return &SetupError{Found: told, Remedy: "check registry-user and registry-password, and that this user may read the subject, or with schema-file write it"}
	case schema.Text != "" && (code == http.StatusConflict || code == http.StatusUnprocessableEntity):
		return &SetupError{Found: told, Remedy: "the schema of schema-file cannot be registered: mend it, or the subject's compatibility; one that refers to others is to be registered by whoever owns it, and named by schema-subject without schema-file"}
	case code == http.StatusRequestTimeout, code == http.StatusTooManyRequests, code >= http.StatusInternalServerError:
		return fmt.Errorf("%s: it answers %d: %w", what, code, errors.New(shortened(answer.Error())))
	}
	return &SetupError{Found: told, Remedy: "check that registry-url is that of the registry's Confluent API"}
}

// shortened: what answers instead of a registry may send a page.
func shortened(text string) string {
	const most = 200
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "") + "..."
	}
	return strings.Join(strings.Fields(text), " ")
}
