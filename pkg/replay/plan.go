package replay

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/walstream/walstream/pkg/checkpoint"
	"github.com/walstream/walstream/pkg/history"
	"github.com/walstream/walstream/pkg/outbox"
	"github.com/walstream/walstream/pkg/pipeline"
	"github.com/walstream/walstream/pkg/replication"
	"github.com/walstream/walstream/pkg/sink"
)

// Config of a replay.
type Config struct {
	Pipeline pipeline.Config // the pipeline's own
	Request  Request
	Rate     int  // rows a second; 0: as fast as it goes
	Restart  bool // what an earlier replay has left is forgotten
	DryRun   bool
}

// Plan is what a replay would do.
type Plan struct {
	Note    checkpoint.Replay // so far, of one that goes on
	Resumes bool              // one that was begun
	Rows    int64             // that the tables hold in the range; -1: unknown
	Notes   []string

	cfg    Config
	replay pipeline.Replay
}

// asCoded is errors.As for errors of PostgreSQL.
func asCoded(err error, coded *interface{ SQLState() string }) bool { return errors.As(err, coded) }

// opener is what a plan is made with.
type opener struct {
	cfg     *Config
	session *replication.Session
	kafka   *sink.Kafka
	mapping *outbox.Mapping
	system  string
	end     pglogrepl.LSN // of the WAL
	tables  []*table
	plan    *Plan
}

// Open decides what is read from where. It changes nothing on either side.
func Open(ctx context.Context, cfg Config) (*Plan, error) {
	if err := cfg.Request.Check(); err != nil {
		return nil, err
	}
	o := &opener{cfg: &cfg, plan: &Plan{cfg: cfg, Rows: -1}}
	var err error
	if o.kafka, err = sink.Open(cfg.Pipeline.Kafka); err != nil {
		return nil, err
	}
	defer o.kafka.Close()
	if o.session, err = replication.OpenSession(ctx, cfg.Pipeline.Postgres); err != nil {
		return nil, err
	}
	defer o.session.Close()
	if err := o.survey(ctx); err != nil {
		return nil, err
	}
	p := o.plan
	p.replay = pipeline.Replay{
		Of: cfg.Pipeline.Pipeline, Topic: cfg.Request.Topic, Key: cfg.Request.Key, TopicPrefix: cfg.Request.TopicPrefix,
		Rate: cfg.Rate, Anew: cfg.Restart, DryRun: cfg.DryRun,
		Note: checkpoint.Replay{ID: newID(time.Now(), cfg.Request.Text), Request: cfg.Request.Text},
	}
	resumes, err := o.resume(ctx)
	if err == nil && !resumes {
		err = o.decide(ctx)
	}
	if err == nil && !p.Note.Done {
		err = o.count(ctx)
	}
	return p, err
}

// newID tells the records of one replay from those of another.
func newID(now time.Time, request string) string {
	sum := sha256.Sum256([]byte(request + now.String()))
	return fmt.Sprintf("%s-%x", now.UTC().Format("20060102T150405Z"), sum[:3])
}

// survey the server and its tables.
func (o *opener) survey(ctx context.Context) (err error) {
	conn := o.session.Conn()
	if err := conn.QueryRow(ctx, "SELECT system_identifier::text FROM pg_control_system()").Scan(&o.system); err != nil {
		return fmt.Errorf("read the server's identifier: %w", replication.Classify(err))
	}
	flushed, _, err := o.session.Flushed(ctx)
	if err != nil {
		return err
	}
	if o.end, err = replication.Inserted(ctx, conn); err != nil { // where an idle stream comes to
		return err
	}
	o.end = min(o.end, flushed)
	if o.mapping, err = outbox.NewMapping(o.cfg.Pipeline.Mapping); err != nil {
		return err
	}
	var named []replication.PublishedTable
	for _, need := range o.mapping.Tables() {
		named = append(named, replication.PublishedTable(need))
	}
	layouts, err := replication.Layouts(ctx, conn, o.cfg.Pipeline.Publication, named)
	if err == nil {
		err = o.mapping.Resolve(layouts...)
	}
	if err != nil {
		return err
	}
	for _, need := range o.mapping.Tables() {
		t, err := lookUp(ctx, conn, need, o.mapping.ColumnsOf(need.Schema, need.Name), &o.cfg.Request, o.cfg.Pipeline.Publication)
		if err != nil {
			return err
		}
		o.tables = append(o.tables, t)
	}
	return nil
}

// resume finds the checkpoint of a replay of the same request.
func (o *opener) resume(ctx context.Context) (resumes bool, err error) {
	p := o.plan
	if o.cfg.Restart || o.cfg.DryRun {
		return false, nil
	}
	own := o.cfg.Pipeline.Kafka
	own.Pipeline = pipeline.ReplayName(o.cfg.Pipeline.Pipeline)
	kafka, err := sink.Open(own)
	if err != nil {
		return false, err
	}
	defer kafka.Close()
	record, found, err := kafka.Load(ctx)
	if err != nil || !found {
		return false, err
	}
	if err := p.replay.Fits(&record, o.system); err != nil {
		return false, err
	}
	if record.Replay.Request != p.replay.Note.Request {
		return false, nil
	}
	p.Note, p.Resumes = *record.Replay, true
	p.replay.Note = p.Note
	if p.Note.Done || p.Note.Source == string(Table) {
		return true, nil
	}
	from, err := history.ParseLSN(p.Note.From)
	if err != nil {
		return false, fmt.Errorf("read the replay's checkpoint: from_lsn: %w", err)
	}
	to, err := history.ParseLSN(p.Note.To)
	if err != nil {
		return false, fmt.Errorf("read the replay's checkpoint: to_lsn: %w", err)
	}
	p.replay.Rewind, p.replay.From, p.replay.To = replication.RewindSlot(o.cfg.Pipeline.Slot), from, to
	return true, nil
}

// decide on the source of a replay that begins.
func (o *opener) decide(ctx context.Context) error {
	q := &o.cfg.Request
	if !q.byLSN() {
		return o.fromTables()
	}
	if *q.FromLSN > o.end {
		return &SetupError{
			fmt.Sprintf("--from-lsn %s lies beyond the end of the server's WAL, %s: nothing was committed there", *q.FromLSN, o.end),
			"give an LSN of before; walstream status shows where the pipeline stands",
		}
	}
	var walErr error
	if q.Source != Table {
		if walErr = o.fromWAL(ctx); walErr == nil || q.Source == WAL {
			return walErr
		}
		if _, uncovered := errors.AsType[*SetupError](walErr); !uncovered {
			return walErr
		}
	}
	err := o.fromHistory(ctx)
	if err == nil && walErr != nil {
		o.plan.Notes = append(o.plan.Notes, "not from the WAL: "+walErr.Error())
	}
	if uncovered, ok := errors.AsType[*SetupError](err); ok && walErr != nil {
		return &SetupError{uncovered.Found, uncovered.Remedy + "; nor from the WAL: " + walErr.Error()}
	}
	return err
}

// fromTables reads ids and times.
func (o *opener) fromTables() error {
	q := &o.cfg.Request
	if (q.FromID != "" || q.ToID != "") && len(o.tables) > 1 {
		return &SettingError{"from-id", "bounds one table, and there are several: take --from-time"}
	}
	var covers []string
	where, orders := map[string]string{}, map[string]string{}
	for _, t := range o.tables {
		if err := t.usable(); err != nil {
			return err
		}
		condition, order, err := t.bounds(q)
		if err != nil {
			return err
		}
		where[t.String()], orders[t.String()] = condition, order
		covers = append(covers, fmt.Sprintf("rows of %s with %s", t, condition))
	}
	o.table(where, orders, strings.Join(covers, "; "))
	return nil
}

func (o *opener) table(where, order map[string]string, covers string) {
	note := &o.plan.replay.Note
	note.Source, note.Where, note.Order, note.Covers = string(Table), where, order, covers
	o.plan.Note = *note
}

// fromHistory reads the rows that were committed from an LSN on, as far as history
// tells them from others.
func (o *opener) fromHistory(ctx context.Context) error {
	q := &o.cfg.Request
	buckets, err := o.kafka.History(ctx)
	if err != nil {
		return fmt.Errorf("read the history of the pipeline: %w", err)
	}
	known := upTo(buckets, q.ToLSN)
	found, err := history.Least(known, *q.FromLSN)
	if uncovered, ok := errors.AsType[*history.UncoveredError](err); ok {
		remedy := "name rows of the table by --from-time or --from-id"
		if uncovered.Earliest != 0 {
			remedy = fmt.Sprintf("the earliest LSN that the table can be replayed from is %s; or ", uncovered.Earliest) + remedy
		}
		return &SetupError{fmt.Sprintf("which rows of the table were committed at %s or later is not known: %s", *q.FromLSN, uncovered), remedy}
	}
	if err != nil {
		return err
	}
	if n := len(buckets); n > 0 && buckets[n-1].SystemID != o.system {
		return &SetupError{fmt.Sprintf("history ends with the server %s, and this one is %s", buckets[n-1].SystemID, o.system), "name rows of the table by --from-time or --from-id"}
	}
	where, orders, covers := map[string]string{}, map[string]string{}, []string{}
	for i := range found {
		b := &found[i]
		n := slices.IndexFunc(o.tables, func(t *table) bool { return t.String() == b.Table })
		if n < 0 {
			return &SetupError{fmt.Sprintf("rows of %s were published in the range, and that is no outbox of the configuration any more", b.Table), "name it again, or rows by --from-time"}
		}
		t := o.tables[n]
		if err := t.usable(); err != nil {
			return err
		}
		condition, order, err := t.boundsOf(b, len(known) < len(buckets))
		if err != nil {
			return err
		}
		where[b.Table], orders[b.Table] = condition, order
		covers = append(covers, fmt.Sprintf("rows of %s with %s", t, condition))
	}
	from, to := *q.FromLSN, "on"
	if q.ToLSN != nil {
		to = "to " + q.ToLSN.String()
	}
	text := fmt.Sprintf("commit LSNs from %s %s by history: ", from, to)
	if len(covers) == 0 {
		text += "no row was published there"
	}
	o.table(where, orders, text+strings.Join(covers, "; "))
	o.plan.Notes = append(o.plan.Notes, "history knows rows by the minute: some that were committed before the range, or behind it, may be among them; deleted rows are not")
	return nil
}

// upTo leaves out the buckets that begin beyond an LSN.
func upTo(buckets []history.Bucket, to *pglogrepl.LSN) []history.Bucket {
	n := len(buckets)
	for to != nil && n > 0 && buckets[n-1].From > *to {
		n--
	}
	return buckets[:n]
}

// count the rows of the tables.
func (o *opener) count(ctx context.Context) error {
	p := o.plan
	if p.Note.Source != string(Table) {
		return nil
	}
	p.Rows = 0
	for _, t := range o.tables {
		where, ok := p.Note.Where[t.String()]
		if !ok {
			continue
		}
		rows, err := t.count(ctx, o.session.Conn(), where)
		if err != nil {
			return err
		}
		p.Rows += rows
	}
	return nil
}

// Run publishes, and returns how far it came, also beside an error.
func (p *Plan) Run(ctx context.Context, told func(checkpoint.Replay)) (checkpoint.Replay, error) {
	p.replay.Told = told
	return p.replay.Run(ctx, p.cfg.Pipeline)
}
