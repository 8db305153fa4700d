package registry

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/twmb/franz-go/pkg/sr"

	"github.com/walstream/walstream/pkg/outbox"
)

// Reach asks the registry for something that every one answers: subjects, of which
// there are none by that name.
func (r *Registry) Reach(ctx context.Context) error {
	if _, err := r.client.Subjects(sr.WithParams(ctx, sr.SubjectPrefix("walstream-check-"))); err != nil {
		return r.explainAs(err, "list subjects", outbox.Schema{}, outbox.SchemaAt{})
	}
	return nil
}

// URLs of the registry.
func (r *Registry) URLs() string { return r.urls }

// Look is Find for a check: it changes nothing. Of a schema that Find would
// register it says whether it is registered, and if not, whether the subject's
// compatibility would let it in; not, whether our user may write there.
func (r *Registry) Look(ctx context.Context, schema outbox.Schema, at outbox.SchemaAt) (detail string, err error) {
	if at.ID != 0 || schema.Text == "" {
		f, err := r.find(ctx, schema, at)
		if err != nil {
			return "", err
		}
		return fmt.Sprintf("schema id %d, %s", f.ID(), schema.Format), nil
	}
	ours := sr.Schema{Schema: schema.Text}
	if err := ours.Type.UnmarshalText([]byte(strings.ToUpper(schema.Format))); err != nil {
		return "", err
	}
	if _, err := r.newFramer(ctx, 0, schema, ours); err != nil {
		if unfit, ok := errors.AsType[*unusable](err); ok {
			return "", &UnknownError{At: at, Reason: "cannot be framed by the schema of schema-file: " + unfit.Error()}
		}
		return "", r.explain(err, schema, at)
	}
	found, err := r.client.LookupSchema(ctx, at.Subject, ours)
	if err == nil {
		return fmt.Sprintf("the schema of schema-file is registered: schema id %d, version %d", found.ID, found.Version), nil
	}
	if !notFound(err) {
		return "", r.explain(err, schema, at)
	}
	const latest = -1
	if _, err := r.client.SchemaByVersion(ctx, at.Subject, latest); notFound(err) {
		return "not in the registry yet: walstream registers the schema of schema-file at its start", nil
	} else if err != nil {
		return "", r.explain(err, schema, at)
	}
	answer, err := r.client.CheckCompatibility(ctx, at.Subject, latest, ours)
	switch {
	case err != nil:
		return "", r.explain(err, schema, at)
	case !answer.Is:
		return "", &SetupError{
			Found:  fmt.Sprintf("the schema of schema-file does not fit the latest of %s by its compatibility%s", Name(at), reasons(answer.Messages)),
			Remedy: "mend the schema, or the subject's compatibility: walstream could not register it",
		}
	}
	return "the schema of schema-file is not registered yet, and fits the subject's latest: walstream registers it at its start", nil
}

func notFound(err error) bool {
	answer, ok := errors.AsType[*sr.ResponseError](err)
	return ok && answer.StatusCode == http.StatusNotFound
}

func reasons(messages []string) string {
	if len(messages) == 0 {
		return ""
	}
	return ": " + shortened(strings.Join(messages, "; "))
}
