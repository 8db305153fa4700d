package pipeline

import (
	"context"
	"errors"
	"strings"

	"github.com/walstream/walstream/pkg/outbox"
	"github.com/walstream/walstream/pkg/replication"
	"github.com/walstream/walstream/pkg/sink/registry"
)

// checkRegistry: does the schema registry answer, and does it have what the settings
// name, or would it take it.
func checkRegistry(ctx context.Context, cfg Config) []replication.Finding {
	r := cfg.Kafka.Registry
	mapping, err := outbox.NewMapping(cfg.Mapping)
	if r == nil || err != nil { // the mapping has a finding of its own
		return nil
	}
	const name = "schema registry"
	if err := r.Reach(ctx); err != nil {
		return []replication.Finding{registryFinding(name, "", err)}
	}
	findings := []replication.Finding{{Name: name, Status: replication.StatusOK, Detail: r.URLs()}}
	for _, need := range mapping.SchemaNeeds() {
		of := "schema of " + need.Table
		if !need.Known {
			findings = append(findings, replication.Finding{Name: of, Status: replication.StatusOK, Detail: "named by the rows: it is looked up with the first one that means it"})
			continue
		}
		detail, err := r.Look(ctx, need.Schema, need.At)
		findings = append(findings, registryFinding(of, registry.Name(need.At)+": "+detail, err))
	}
	return findings
}

func registryFinding(name, detail string, err error) replication.Finding {
	if err == nil {
		return replication.Finding{Name: name, Status: replication.StatusOK, Detail: detail}
	}
	f := failed(name, err)
	if setup, ok := errors.AsType[*registry.SetupError](err); ok {
		f.Detail, f.Remedy = setup.Found, setup.Remedy
	} else if _, unknown := errors.AsType[*registry.UnknownError](err); unknown {
		f.Remedy = "register the schema, or check schema-subject, schema-version, schema-id, schema-format and schema-file"
	} else {
		f.Remedy = "check registry-url, and that the registry runs and can be reached from here: rows wait until it answers"
	}
	f.Detail = strings.TrimSuffix(f.Detail, ": register its schema, then start walstream again")
	return f
}
