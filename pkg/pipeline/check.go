package pipeline

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/walstream/walstream/pkg/checkpoint"
	"github.com/walstream/walstream/pkg/outbox"
	"github.com/walstream/walstream/pkg/replication"
	"github.com/walstream/walstream/pkg/sink"
)

// Check looks at everything a pipeline needs, on both sides, and says of each
// thing how it stands and what mends it. It changes nothing.
func Check(ctx context.Context, cfg Config) []replication.Finding {
	findings := append(checkPostgres(ctx, cfg), checkKafka(ctx, cfg)...)
	findings = append(findings, checkRegistry(ctx, cfg)...)
	if replication.Refused(findings) != nil {
		return findings
	}
	return append(findings, checkStart(ctx, cfg))
}

// checkStart compares checkpoint, slot and server, as a start does before it
// disturbs anybody.
func checkStart(ctx context.Context, cfg Config) replication.Finding {
	const name = "start"
	r := &run{Supervisor: NewSupervisor(cfg)}
	defer r.close()
	decision, err := r.foresee(ctx)
	var refusal *checkpoint.Refusal
	switch {
	case errors.As(err, &refusal):
		return replication.Finding{Name: name, Status: replication.StatusFail, Detail: refusal.Found, Remedy: refusal.Remedy, Err: err}
	case err != nil:
		return failed(name, err)
	case decision.Verdict == checkpoint.Fresh:
		if _, err := r.publicationOfSetUp(ctx); err != nil {
			return failed(name, err)
		}
		return replication.Finding{Name: name, Status: replication.StatusOK, Detail: "neither slot nor checkpoint: walstream makes both at its first start"}
	}
	return replication.Finding{Name: name, Status: replication.StatusOK, Detail: fmt.Sprintf("checkpoint, slot and server fit together; it would go on from %s", decision.Start.Covered)}
}

// foresee is what the next start would decide. Another instance may be at work:
// the slot is read before the checkpoint, and the end of the WAL behind both.
func (r *run) foresee(ctx context.Context) (checkpoint.Decision, error) {
	if err := r.connect(ctx); err != nil {
		return checkpoint.Decision{}, err
	}
	return r.weigh(ctx)
}

// weigh compares checkpoint, slot and server as they stand.
func (r *run) weigh(ctx context.Context) (checkpoint.Decision, error) {
	slot, err := r.slot(ctx)
	if err != nil {
		return checkpoint.Decision{}, err
	}
	record, found, err := r.kafka.Load(ctx)
	if err != nil {
		return checkpoint.Decision{}, err
	}
	if r.identity.Flushed, r.identity.Now, err = r.session.Flushed(ctx); err != nil {
		return checkpoint.Decision{}, err
	}
	if r.rows, err = replication.RowsFingerprint(ctx, r.session.Conn(), r.publication()); err != nil {
		return checkpoint.Decision{}, err
	}
	return r.compareWith(record, found, slot)
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
		if right, ok := errors.AsType[*replication.RightError](err); ok {
			f.Remedy = right.SQL
			return f
		}
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
	topics := cfg.topics()
	var findings []replication.Finding
	for _, f := range kafka.Check(ctx, topics) {
		findings = append(findings, replication.Finding{Name: f.Name, Status: replication.Status(f.Status), Detail: f.Detail, Remedy: f.Remedy, Err: f.Err})
	}
	findings = append(findings, checkHanging(ctx, cfg, kafka)...)
	return append(findings, checkPause(ctx, cfg, kafka)...)
}

// topics that rows go to, as far as the settings tell.
func (c *Config) topics() (topics []string) {
	for _, m := range c.Mapping {
		if m.Topic != "" {
			topics = append(topics, m.Topic)
		}
	}
	return topics
}

// hanging transactions of this pipeline's own. In at-least-once only its checkpoint
// is in one.
func hanging(ctx context.Context, cfg Config, kafka *sink.Kafka) (unseen []*sink.AccessError, found *sink.SetupError) {
	var topics []string
	if cfg.Delivery == ExactlyOnce {
		topics = cfg.topics()
	}
	unseen, err := kafka.Hanging(ctx, topics)
	found, _ = errors.AsType[*sink.SetupError](err) // brokers that do not answer are named elsewhere
	return unseen, found
}

func checkHanging(ctx context.Context, cfg Config, kafka *sink.Kafka) (findings []replication.Finding) {
	const name = "kafka transactions"
	unseen, found := hanging(ctx, cfg, kafka)
	if found != nil {
		return []replication.Finding{{Name: name, Status: replication.StatusFail, Detail: found.Found, Remedy: found.Remedy, Err: found}}
	}
	for _, access := range unseen {
		findings = append(findings, replication.Finding{
			Name: name, Status: replication.StatusWarn, Remedy: access.Grant,
			Detail: fmt.Sprintf("without the right %s on %s it cannot be told whether a transaction of this pipeline's hangs there: a start waits while any is open, and then stops", access.Right, access.Resource),
		})
	}
	return findings
}

// checkPause: a pause is easily forgotten, and without the right to read it one has
// no effect. Brokers that do not answer are named elsewhere.
func checkPause(ctx context.Context, cfg Config, kafka *sink.Kafka) []replication.Finding {
	const name = "pause"
	pause, err := kafka.ReadPause(ctx)
	if access, denied := errors.AsType[*sink.AccessError](err); denied {
		return []replication.Finding{{Name: name, Status: replication.StatusWarn, Detail: "walstream pause would have no effect: " + err.Error(), Remedy: access.Grant}}
	}
	if err == nil && pause.InForce(time.Now()) {
		return []replication.Finding{{Name: name, Status: replication.StatusWarn, Detail: pause.String(), Remedy: "walstream resume --slot " + cfg.Slot}}
	}
	return nil
}

func failed(name string, err error) replication.Finding {
	return replication.Finding{Name: name, Status: replication.StatusFail, Detail: err.Error(), Remedy: remedy(err), Err: err}
}

// remedy of what kept the check from looking; an error that a person can act on
// says itself how.
func remedy(err error) string {
	right, missing := errors.AsType[*replication.RightError](err)
	switch {
	case missing:
		return right.SQL
	case errors.Is(err, replication.ErrUnreachable):
		return "see that the server runs, and that host, port and the network let this machine in (--postgres, or PGHOST and PGPORT)"
	case errors.Is(err, replication.ErrServerStopping):
		return "check again when the server takes connections"
	case errors.Is(err, replication.ErrNoDatabase), errors.Is(err, replication.ErrTLS), errors.Is(err, replication.ErrAddress):
		return "mend the address (--postgres, or the PG* variables)"
	case errors.Is(err, context.DeadlineExceeded):
		return "see that the server answers, then check again"
	case Classify(err).Action == Retry:
		return "it may pass: check again in a moment"
	}
	return "do what the message says, then check again"
}
