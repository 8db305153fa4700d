package decode_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/walstream/walstream/internal/testenv"
	"github.com/walstream/walstream/pkg/decode"
)

// scenario is something to do on a server while its stream is recorded.
type scenario struct {
	name       string
	setup      []string // before the slot exists
	do         []step
	binary     bool
	keepalives bool // record the last keepalive too; elsewhere they only tell the time
}

// step is a statement, by default of session "a".
type step struct {
	sql     string
	session string
	copy    string // what COPY ... FROM STDIN reads
}

func (s step) String() string {
	text := s.sql
	if s.session != "" {
		text = s.session + ": " + text
	}
	if s.copy != "" {
		text += fmt.Sprintf(" <- %q", s.copy)
	}
	return text
}

func do(statements ...string) (steps []step) {
	for _, sql := range statements {
		steps = append(steps, step{sql: sql})
	}
	return steps
}

// TestCapture records every scenario on real servers. With -update it writes the
// goldens; without, what the server sends today must have the shape of what is
// recorded.
func TestCapture(t *testing.T) {
	if testing.Short() {
		t.Skip("starts servers")
	}
	majors := testenv.Majors()
	if *update {
		majors = []int{testenv.OldestMajor, testenv.NewestMajor}
	}
	for _, major := range majors {
		t.Run(fmt.Sprintf("postgres%d", major), func(t *testing.T) {
			server := testenv.SharedPostgres(t, major)
			var captured []golden
			for _, s := range scenarios {
				captured = append(captured, capture(t, server, s))
			}
			if *update {
				head := fmt.Sprintf("PostgreSQL %d: CopyData payloads, protocol version 1. Written anew by: go test ./pkg/decode -run TestCapture -update", major)
				writeGolden(t, goldenPath(major), head, captured)
				return
			}
			compareShapes(t, captured, readGolden(t, goldenPath(nearestGolden(major))))
		})
	}
}

// nearestGolden is the major whose recording stands for this one.
func nearestGolden(major int) int {
	if major < testenv.NewestMajor {
		return testenv.OldestMajor
	}
	return testenv.NewestMajor
}

func compareShapes(t *testing.T, captured, recorded []golden) {
	t.Helper()
	if len(captured) != len(recorded) {
		t.Fatalf("%d scenarios, %d recorded: run with -update", len(captured), len(recorded))
	}
	for i, got := range captured {
		want := recorded[i]
		if got.name != want.name || !slices.Equal(got.statements, want.statements) {
			t.Errorf("scenario %q is not the one recorded: run with -update", got.name)
			continue
		}
		gotShape, wantShape := normalize(render(t, got.payloads)), normalize(want.decoded)
		if !slices.Equal(gotShape, wantShape) {
			t.Errorf("%s:\ngot\n\t%s\nrecorded\n\t%s", got.name, strings.Join(gotShape, "\n\t"), strings.Join(wantShape, "\n\t"))
		}
	}
}

// capture runs a scenario in a database of its own.
func capture(t *testing.T, server *testenv.Postgres, s scenario) golden {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	dsn := server.CreateDatabase(t)
	sessions := sessions{t: t, ctx: ctx, dsn: dsn, open: map[string]*pgx.Conn{}}
	defer sessions.close()
	for _, sql := range s.setup {
		sessions.run(step{sql: sql})
	}
	stream := startCapture(t, ctx, dsn, s)
	defer stream.close()
	g := golden{name: s.name}
	for _, sql := range s.setup {
		g.statements = append(g.statements, "before: "+sql)
	}
	for _, step := range s.do {
		sessions.run(step)
		g.statements = append(g.statements, step.String())
	}
	var target string
	if err := sessions.get("").QueryRow(ctx, "SELECT pg_current_wal_insert_lsn()::text").Scan(&target); err != nil {
		t.Fatal(err)
	}
	end, err := pglogrepl.ParseLSN(target)
	if err != nil {
		t.Fatal(err)
	}
	g.payloads = stream.readTo(end, s.keepalives)
	return g
}

// sessions are ordinary connections by name.
type sessions struct {
	t    *testing.T
	ctx  context.Context
	dsn  string
	open map[string]*pgx.Conn
}

func (s *sessions) get(name string) *pgx.Conn {
	if s.open[name] == nil {
		conn, err := pgx.Connect(s.ctx, s.dsn)
		if err != nil {
			s.t.Fatal(err)
		}
		s.open[name] = conn
	}
	return s.open[name]
}

func (s *sessions) run(step step) {
	s.t.Helper()
	conn := s.get(step.session).PgConn()
	var err error
	if step.copy != "" {
		_, err = conn.CopyFrom(s.ctx, strings.NewReader(step.copy), step.sql)
	} else {
		_, err = conn.Exec(s.ctx, step.sql).ReadAll()
	}
	if err != nil {
		s.t.Fatalf("%s: %v", step, err)
	}
}

func (s *sessions) close() {
	for _, conn := range s.open {
		_ = conn.Close(context.WithoutCancel(s.ctx))
	}
}

// stream is a replication connection that records.
type stream struct {
	t    *testing.T
	ctx  context.Context
	conn *pgconn.PgConn
}

func startCapture(t *testing.T, ctx context.Context, dsn string, s scenario) *stream {
	t.Helper()
	config, err := pgconn.ParseConfig(dsn)
	if err != nil {
		t.Fatal(err)
	}
	config.RuntimeParams["replication"] = "database"
	conn, err := pgconn.ConnectConfig(ctx, config)
	if err != nil {
		t.Fatal(err)
	}
	slot, err := pglogrepl.CreateReplicationSlot(ctx, conn, "capture", "pgoutput", pglogrepl.CreateReplicationSlotOptions{Temporary: true})
	if err != nil {
		t.Fatal(err)
	}
	start, err := pglogrepl.ParseLSN(slot.ConsistentPoint)
	if err != nil {
		t.Fatal(err)
	}
	arguments := []string{"proto_version '1'", "publication_names 'pub'", "messages 'true'", fmt.Sprintf("binary '%v'", s.binary)}
	if err := pglogrepl.StartReplication(ctx, conn, "capture", start, pglogrepl.StartReplicationOptions{PluginArgs: arguments}); err != nil {
		t.Fatal(err)
	}
	return &stream{t: t, ctx: ctx, conn: conn}
}

// readTo returns the payloads up to the first keepalive at or beyond end.
func (s *stream) readTo(end pglogrepl.LSN, keepalives bool) (payloads [][]byte) {
	s.t.Helper()
	for {
		message, err := s.receive()
		if err != nil {
			s.t.Fatalf("after %d payloads: %v", len(payloads), err)
		}
		data, ok := message.(*pgproto3.CopyData)
		if !ok {
			s.t.Fatalf("message %#v", message)
		}
		frame, err := decode.ParseFrame(data.Data)
		if err != nil {
			s.t.Fatal(err)
		}
		done := frame.Kind == decode.FrameKeepalive && frame.LSN >= end
		if frame.Kind == decode.FrameXLogData || done && keepalives {
			payloads = append(payloads, slices.Clone(data.Data))
		}
		if done {
			return payloads
		}
	}
}

// receive asks for a keepalive whenever the server has said nothing for a while.
func (s *stream) receive() (pgproto3.BackendMessage, error) {
	for {
		ctx, cancel := context.WithTimeout(s.ctx, 50*time.Millisecond)
		message, err := s.conn.ReceiveMessage(ctx)
		cancel()
		if err == nil || s.ctx.Err() != nil || !pgconn.Timeout(err) {
			return message, err
		}
		// The bytes a server reads are ours, too: it understands them or hangs up.
		status := &pgproto3.CopyData{Data: decode.AppendStatusUpdate(nil, 1, 1, time.Now(), true)}
		encoded, err := status.Encode(nil)
		if err != nil {
			return nil, err
		}
		if err := s.conn.Frontend().SendUnbufferedEncodedCopyData(encoded); err != nil {
			return nil, err
		}
	}
}

func (s *stream) close() {
	err := s.conn.Close(context.WithoutCancel(s.ctx))
	if err != nil && !errors.Is(err, context.DeadlineExceeded) {
		s.t.Log(err)
	}
}
