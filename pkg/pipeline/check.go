package pipeline

import (
	"context"
	"fmt"

	"github.com/walstream/walstream/pkg/outbox"
	"github.com/walstream/walstream/pkg/replication"
	"github.com/walstream/walstream/pkg/sink"
)

// Check looks at everything a pipeline needs, on both sides, and says of each
// thing how it stands and what mends it. It changes nothing.
func Check(ctx context.Context, cfg Config) []replication.Finding {
	return append(checkPostgres(ctx, cfg), checkKafka(ctx, cfg)...)
}

func checkPostgres(ctx context.Context, cfg Config) []replication.Finding {
	r := &run{Supervisor: NewSupervisor(cfg)}
	defer r.close()
	var err error
	if r.mapping, err = outbox.NewMapping(cfg.Mapping); err != nil {
		return []replication.Finding{failed("mapping", err)}
	}
	if r.session, err = replication.OpenSession(ctx, cfg.Postgres); err != nil {
		return []replication.Finding{failed("PostgreSQL", err)}
	}
	findings, err := r.findings(ctx)
	if err != nil {
		return []replication.Finding{failed("PostgreSQL", err)}
	}
	return append(findings, r.checkConnection(ctx))
}

// checkConnection tries what only a replication connection can: pg_hba.conf has
// rules of its own for it, and poolers refuse it.
func (r *run) checkConnection(ctx context.Context) replication.Finding {
	const name = "replication connection"
	timeout, err := r.session.WalSenderTimeout(ctx)
	if err == nil {
		r.conn, err = replication.Connect(ctx, r.cfg.Postgres, timeout)
	}
	if err == nil {
		r.identity, err = r.conn.Identify(ctx)
	}
	if err != nil {
		f := failed(name, err)
		f.Remedy = "the role needs REPLICATION and a line in pg_hba.conf that lets it in; a pooler in the path must be gone around"
		return f
	}
	return replication.Finding{Name: name, Status: replication.StatusOK, Detail: fmt.Sprintf("server %s, timeline %d, wal_sender_timeout %s",
		r.identity.SystemID, r.identity.Timeline, r.conn.WalSenderTimeout())}
}

func checkKafka(ctx context.Context, cfg Config) []replication.Finding {
	kafka, err := sink.Open(cfg.Kafka)
	if err != nil {
		return []replication.Finding{failed("Kafka", err)}
	}
	defer kafka.Close()
	var topics []string
	for _, m := range cfg.Mapping {
		if m.Topic != "" {
			topics = append(topics, m.Topic)
		}
	}
	var findings []replication.Finding
	for _, f := range kafka.Check(ctx, topics) {
		findings = append(findings, replication.Finding{Name: f.Name, Status: replication.Status(f.Status), Detail: f.Detail, Remedy: f.Remedy})
	}
	return findings
}

func failed(name string, err error) replication.Finding {
	return replication.Finding{Name: name, Status: replication.StatusFail, Detail: err.Error(), Err: err}
}
