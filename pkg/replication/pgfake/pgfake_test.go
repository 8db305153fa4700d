package pgfake_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/walstream/walstream/internal/virtual"
	"github.com/walstream/walstream/pkg/decode"
	"github.com/walstream/walstream/pkg/replication"
	"github.com/walstream/walstream/pkg/replication/pgfake"
)

const address = "127.0.0.1:5432"

// bubble is a server with a slot, and a host to reach it from.
type bubble struct {
	*testing.T
	server  *pgfake.Server
	network *virtual.Network
	host    *virtual.Host
	session *replication.Session

	mu      sync.Mutex
	unknown []string
	broken  []string
}

// note what the server tells, in a goroutine of its own.
func (b *bubble) note(list *[]string, what string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	*list = append(*list, what)
}

// take what was noted.
func (b *bubble) take(list *[]string) []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	noted := *list
	*list = nil
	return noted
}

var spec = replication.PublicationSpec{Name: "pub", Tables: []replication.PublishedTable{{Schema: "public", Name: "outbox", Columns: []string{"id"}}}}

func inBubble(t *testing.T, cfg pgfake.Config, test func(b *bubble)) {
	synctest.Test(t, func(t *testing.T) {
		b := &bubble{T: t, network: virtual.NewNetwork(time.Millisecond, 0)}
		cfg.Database = "bank"
		cfg.Table = &decode.Relation{
			ID: 16400, Namespace: "public", Name: "outbox", ReplicaIdentity: 'd',
			Columns: []decode.Column{{Name: "id", TypeOID: 20, TypeMod: -1, Key: true}},
		}
		cfg.Unknown = func(sql string) { b.note(&b.unknown, sql) }
		cfg.Broken = func(what string) { b.note(&b.broken, what) }
		b.server = pgfake.New(cfg)
		listener, err := b.network.Listen("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		b.server.Serve(listener)
		b.host = b.network.Host("host")
		b.session = must(replication.OpenSession(t.Context(), b.options()))(t)
		defer func() {
			b.session.Close()
			b.network.Close()
			b.server.Close()
		}()
		if _, err := replication.EnsurePublication(t.Context(), b.session.Conn(), spec); err != nil {
			t.Fatal(err)
		}
		must(replication.CreateSlot(t.Context(), b.session.Conn(), "slot", false, nil))(t)
		test(b)
		if broken := b.take(&b.broken); len(broken) > 0 {
			t.Error(broken)
		}
	})
}

func must[T any](v T, err error) func(t *testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func (b *bubble) options() replication.Options {
	return replication.Options{Postgres: "postgres://me@" + address + "/bank?sslmode=disable", ApplicationName: "me", Dial: b.host.DialContext}
}

func (b *bubble) connect() *replication.Conn {
	b.Helper()
	return must(replication.Connect(b.Context(), b.options(), time.Minute))(b.T)
}

var stream = replication.Stream{Slot: "slot", Publication: "pub", Binary: true}

func (b *bubble) start() *replication.Conn {
	b.Helper()
	c := b.connect()
	if err := c.Start(b.Context(), stream); err != nil {
		b.Fatal(err)
	}
	return c
}

// read the kinds of messages that come within a while: k for a keepalive, K for
// one that wants an answer.
func (b *bubble) read(c *replication.Conn, d time.Duration) (kinds string) {
	b.Helper()
	over := time.After(d)
	for {
		select {
		case batch, ok := <-c.Batches():
			if !ok {
				return kinds + "."
			}
			for payload, more := batch.Next(); more; payload, more = batch.Next() {
				frame, err := decode.ParseFrame(payload)
				switch {
				case err != nil:
					b.Fatal(err)
				case frame.Kind != decode.FrameKeepalive:
					kinds += string(frame.Data[:1])
				case frame.ReplyRequested:
					kinds += "K"
				default:
					kinds += "k"
				}
			}
			c.Release(batch)
		case <-over:
			return kinds
		}
	}
}

func (b *bubble) status(c *replication.Conn, lsn pglogrepl.LSN) {
	b.Helper()
	if err := c.SendStatus(lsn, lsn, false); err != nil {
		b.Fatal(err)
	}
	time.Sleep(10 * time.Millisecond)
}

func (b *bubble) confirmed() pglogrepl.LSN {
	slot, _ := b.server.Slot("slot")
	return slot.Confirmed
}

func TestWhatComesAgain(t *testing.T) {
	inBubble(t, pgfake.Config{}, func(b *bubble) {
		first := b.server.Commit(pgfake.Row{int64(1)})
		b.server.Other(1000)
		c := b.start()
		if got := b.read(c, time.Second); got != "BRICk" {
			b.Errorf("a transaction and other tables: %s", got)
		}
		b.status(c, first.EndLSN)
		c.Close()
		if got := b.read(b.start(), time.Second); got != "k" {
			b.Errorf("after its end was confirmed: %s", got)
		}
	})
	inBubble(t, pgfake.Config{}, func(b *bubble) {
		b.server.Commit(pgfake.Row{int64(1)}, pgfake.Row{int64(2)})
		c := b.start()
		b.read(c, time.Second)
		c.Close()
		if got := b.read(b.start(), time.Second); got != "BRIICk" {
			b.Errorf("after nothing was confirmed: %s", got)
		}
	})
	inBubble(t, pgfake.Config{}, func(b *bubble) {
		transaction := b.server.Commit(pgfake.Row{int64(1)})
		c := b.start()
		b.read(c, time.Second)
		b.status(c, transaction.CommitLSN)
		if broken := b.take(&b.broken); len(broken) != 1 {
			b.Errorf("nobody was told of a position inside a transaction: %q", broken)
		}
		c.Close()
		if got := b.read(b.start(), time.Second); got != "BRICk" {
			b.Errorf("after its commit's own LSN was confirmed: %s", got)
		}
	})
}

func TestABusySlot(t *testing.T) {
	inBubble(t, pgfake.Config{}, func(b *bubble) {
		c := b.start()
		if err := b.connect().Start(b.Context(), stream); !errors.Is(err, replication.ErrSlotBusy) {
			b.Errorf("a second one: %v", err)
		}
		info := must(replication.LookupSlot(b.Context(), b.session.Conn(), "slot"))(b.T)
		if uint32(info.ActivePID) != c.PID() || info.ApplicationName != "me" {
			b.Errorf("held by %s, not %d", info.Holder(), c.PID())
		}
		b.host.Vanish()
		b.host = b.network.Host("other")
		began := time.Now()
		for slot, _ := b.server.Slot("slot"); slot.Active; slot, _ = b.server.Slot("slot") {
			time.Sleep(100 * time.Millisecond)
		}
		if took := time.Since(began).Round(time.Second); took != 15*time.Second {
			b.Errorf("a client that is gone without a word held the slot for %s", took)
		}
	})
}

func TestAsksAfterHalfOfTheTimeout(t *testing.T) {
	inBubble(t, pgfake.Config{}, func(b *bubble) {
		c := b.start()
		if got := b.read(c, 7*time.Second); got != "k" { // tells where it stands before it waits
			b.Errorf("before: %s", got)
		}
		if got := b.read(c, time.Second); got != "K" {
			b.Errorf("at half of it: %s", got)
		}
		if got := b.read(c, time.Minute); got != "." {
			b.Errorf("at the whole: %s", got)
		}
	})
}

func TestACrashForgetsWhatWasNotWrittenDown(t *testing.T) {
	inBubble(t, pgfake.Config{SaveEvery: time.Minute}, func(b *bubble) {
		before := b.confirmed()
		transaction := b.server.Commit(pgfake.Row{int64(1)})
		c := b.start()
		b.read(c, time.Second)
		b.status(c, transaction.EndLSN)
		if got := b.confirmed(); got != transaction.EndLSN {
			b.Fatalf("confirmed %s, not %s", got, transaction.EndLSN)
		}
		b.server.Crash()
		if got := b.read(c, time.Second); got != "." || b.confirmed() != before {
			b.Errorf("the stream brings %q, the slot stands at %s, not %s", got, b.confirmed(), before)
		}
		b.server.Recover()
		if _, err := replication.OpenSession(b.Context(), b.options()); !errors.Is(err, replication.ErrServerStopping) {
			b.Errorf("while it recovers: %v", err)
		}
		b.server.Start()
		if got := b.read(b.start(), time.Second); got != "BRICk" {
			b.Errorf("again: %s", got)
		}
	})
}

func TestAFastShutdownWaitsForTheStream(t *testing.T) {
	inBubble(t, pgfake.Config{}, func(b *bubble) {
		transaction := b.server.Commit(pgfake.Row{int64(1)})
		c := b.start()
		stopped := make(chan struct{})
		go func() {
			defer close(stopped)
			b.server.Stop()
		}()
		began := time.Now()
		if err := b.session.Listen(b.Context(), time.Minute); !errors.Is(err, replication.ErrServerStopping) || time.Since(began) > time.Second {
			b.Errorf("the ordinary session hears %v after %s", err, time.Since(began))
		}
		if got := b.read(c, 5*time.Second); got != "BRICk" {
			b.Errorf("meanwhile: %s", got)
		}
		select {
		case <-stopped:
			b.Error("it did not wait")
		default:
		}
		b.status(c, transaction.EndLSN)
		<-stopped
		if got := b.read(c, time.Second); got != "." {
			b.Errorf("in the end: %s", got)
		}
	})
}

func TestAStalledWalsender(t *testing.T) {
	inBubble(t, pgfake.Config{}, func(b *bubble) {
		c := b.start()
		b.read(c, time.Second)
		b.server.Stall(40 * time.Second)
		transaction := b.server.Commit(pgfake.Row{int64(1)})
		if got := b.read(c, 39*time.Second); got != "" {
			b.Errorf("while it is stalled: %s", got)
		}
		b.status(c, b.confirmed()) // waits in the socket
		if health := must(b.session.Read(b.Context(), replication.Watched{Slot: "slot", Walsender: c.PID(), Publication: spec}))(b.T); !health.WalsenderActive ||
			health.WALEnd != transaction.EndLSN || health.SyncState != "async" {
			b.Errorf("health: %+v", health)
		}
	})
}

func TestStatements(t *testing.T) {
	inBubble(t, pgfake.Config{}, func(b *bubble) {
		findings := replication.Preflight(b.Context(), b.session.Conn(), replication.Spec{Slot: "slot", Publication: spec, ApplicationName: "me"})
		if err := replication.Refused(findings); err != nil || len(findings) < 10 {
			b.Errorf("preflight: %v", err)
		}
		if slices.ContainsFunc(findings, func(f replication.Finding) bool { return f.Status == replication.StatusWarn }) {
			b.Errorf("preflight warns: %+v", findings)
		}
		before := must(replication.RowsFingerprint(b.Context(), b.session.Conn(), spec))(b.T)
		if err := errors.Join(
			replication.DropSlot(b.Context(), b.session.Conn(), "slot"),
			replication.DropPublication(b.Context(), b.session.Conn(), "pub"),
		); err != nil {
			b.Error(err)
		}
		if after := must(replication.RowsFingerprint(b.Context(), b.session.Conn(), spec))(b.T); after == before {
			b.Error("the fingerprint is that of before the publication was dropped")
		}
		_, err := b.session.Conn().Exec(context.Background(), "SELECT 42")
		if unknown := b.take(&b.unknown); err == nil || !slices.Equal(unknown, []string{"SELECT 42"}) {
			b.Errorf("a statement that nobody has taught: %v, told of %q", err, unknown)
		}
	})
}
