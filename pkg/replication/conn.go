package replication

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/walstream/walstream/pkg/decode"
)

const (
	// ourWalSenderTimeout is set on our own session, so that a vanished instance
	// frees the slot in that time whatever the server's setting.
	ourWalSenderTimeout = 15 * time.Second
	// connectTimeout bounds one attempt to connect; libpq has none by default.
	connectTimeout = 10 * time.Second
	// writeTimeout bounds a status update: 34 bytes that do not fit into the
	// socket's buffer mean the peer has not read for hours.
	writeTimeout = 5 * time.Second
)

// Options of the two connections.
type Options struct {
	// Postgres is a libpq URL or DSN; empty takes the PG* variables and libpq's
	// defaults. It holds a secret and is never printed.
	Postgres        string
	ApplicationName string
	// Password is asked at each connect for the one to use; found is what address,
	// variables or password file have at that moment. nil: that.
	Password func(found string) (string, error)
	// FromStandby takes a server in recovery, too.
	FromStandby bool
	// Published is what tells an old primary, of several servers; nil: nobody knows.
	Published *Published
	// Dial replaces the dialer, for tests in virtual time. Names are then handed
	// to it as they are, without being looked up.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// config parses the address; errors never repeat it, it may hold a password. The
// files it names (passfile, sslrootcert, sslcert, sslkey) are read anew each time.
func (o Options) config() (*pgx.ConnConfig, error) {
	cfg, err := pgx.ParseConfig(o.Postgres)
	if err != nil {
		reason := redact(err)
		if strings.Contains(err.Error(), badTLSFile) {
			return nil, fmt.Errorf("%w: %w", ErrCredentials, reason)
		}
		return nil, fmt.Errorf("parse the PostgreSQL address: %w", reason)
	}
	if o.Password != nil {
		if cfg.Password, err = o.Password(cfg.Password); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrCredentials, err)
		}
	}
	cfg.RuntimeParams["application_name"] = o.ApplicationName
	for name, value := range SessionSettings() {
		cfg.RuntimeParams[name] = value
	}
	cfg.AfterConnect = NewerSettings
	if several := hosts(&cfg.Config) > 1; several {
		if cfg.ValidateConnect == nil {
			// Of several servers one takes writes, and only that one has what we read.
			cfg.ValidateConnect = pgconn.ValidateConnectTargetSessionAttrsPrimary
		}
		cfg.ValidateConnect = o.Published.orNewer(cfg.ValidateConnect)
	}
	if cfg.ConnectTimeout == 0 {
		cfg.ConnectTimeout = connectTimeout
	}
	if o.Dial != nil {
		cfg.DialFunc = o.Dial
		cfg.LookupFunc = func(_ context.Context, host string) ([]string, error) { return []string{host}, nil }
	}
	return cfg, nil
}

// badTLSFile is all that pgconn says when a file of certificates or keys cannot be
// used.
const badTLSFile = "failed to configure TLS"

// hosts is how many servers an address names. pgconn's fallbacks are also other
// ways to the same one.
func hosts(cfg *pgconn.Config) int {
	type server struct {
		host string
		port uint16
	}
	seen := map[server]bool{{cfg.Host, cfg.Port}: true}
	for _, f := range cfg.Fallbacks {
		seen[server{f.Host, f.Port}] = true
	}
	return len(seen)
}

// Servers is how many servers the address names; 0 where it cannot be read.
func (o Options) Servers() int {
	cfg, err := pgx.ParseConfig(o.Postgres)
	if err != nil {
		return 0
	}
	return hosts(&cfg.Config)
}

// Database is the name of the database the options lead to.
func (o Options) Database() (string, error) {
	cfg, err := o.config()
	if err != nil {
		return "", err
	}
	if cfg.Database == "" {
		return cfg.User, nil // libpq's rule
	}
	return cfg.Database, nil
}

// redact keeps pgx's reason and drops the address it quotes.
func redact(err error) error {
	var parse *pgconn.ParseConfigError
	if !errors.As(err, &parse) {
		return err
	}
	if inner := errors.Unwrap(parse); inner != nil {
		var netErr interface{ Unwrap() error }
		if errors.As(inner, &netErr) && netErr.Unwrap() != nil {
			return netErr.Unwrap() // url.Error and its like quote the address
		}
		return inner
	}
	return errors.New("it is neither a URL nor a list of key=value settings")
}

// Identity of the server, by IDENTIFY_SYSTEM.
type Identity struct {
	SystemID string
	Timeline uint32
	Flushed  pglogrepl.LSN
	Now      time.Time // by its clock, when Flushed was read; zero: not asked
	Database string
	// InRecovery: it is a standby, whose timeline may rise at any moment. Only asked
	// with FromStandby.
	InRecovery bool
	// Left says at which LSN the server's history left each earlier timeline.
	Left map[uint32]pglogrepl.LSN
}

// Conn is the replication connection. It is used by one goroutine; what it reads
// after Start belongs to the Reader.
type Conn struct {
	*Reader
	pg       *pgconn.PgConn
	messages *messageReader
	timeout  time.Duration // wal_sender_timeout in force
	status   []byte
	done     chan struct{} // closed when the reader goroutine has ended; nil before Start
	born     time.Time
	toldAt   atomic.Int64 // when the server was last written to, since born; 0 before Start
}

// Connect opens a replication connection. currentTimeout is the
// wal_sender_timeout an ordinary session sees: a shorter one than ours is kept.
func Connect(ctx context.Context, o Options, currentTimeout time.Duration) (*Conn, error) {
	cfg, err := o.config()
	if err != nil {
		return nil, err
	}
	c := &Conn{born: time.Now()}
	cfg.RuntimeParams["replication"] = "database"
	if currentTimeout == 0 || currentTimeout > ourWalSenderTimeout {
		cfg.RuntimeParams["wal_sender_timeout"] = strconv.FormatInt(ourWalSenderTimeout.Milliseconds(), 10)
	}
	cfg.BuildFrontend = func(r io.Reader, w io.Writer) *pgproto3.Frontend {
		c.messages = newMessageReader(r)
		return pgproto3.NewFrontend(c.messages, w)
	}
	if c.pg, err = pgconn.ConnectConfig(ctx, &cfg.Config); err != nil {
		return nil, fmt.Errorf("open the replication connection: %w", classify(err))
	}
	if c.timeout, err = c.showTimeout(ctx); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// WalSenderTimeout is the setting in force on this session; 0 means none.
func (c *Conn) WalSenderTimeout() time.Duration { return c.timeout }

// PID of the walsender.
func (c *Conn) PID() uint32 { return c.pg.PID() }

// RemoteAddr of the server.
func (c *Conn) RemoteAddr() string { return c.pg.Conn().RemoteAddr().String() }

func (c *Conn) showTimeout(ctx context.Context) (time.Duration, error) {
	results, err := c.pg.Exec(ctx, "SHOW wal_sender_timeout").ReadAll()
	if err != nil {
		return 0, fmt.Errorf("read wal_sender_timeout: %w", classify(err))
	}
	if len(results) != 1 || len(results[0].Rows) != 1 {
		return 0, errors.New("read wal_sender_timeout: no answer")
	}
	return parsePGDuration(string(results[0].Rows[0][0]))
}

// pgUnits are the units SHOW prints a time setting in.
var pgUnits = map[string]time.Duration{
	"us": time.Microsecond, "ms": time.Millisecond, "s": time.Second,
	"min": time.Minute, "h": time.Hour, "d": 24 * time.Hour,
}

// parsePGDuration reads a time setting the way SHOW prints it: "15s", "1min", "0".
func parsePGDuration(s string) (time.Duration, error) {
	if s == "0" {
		return 0, nil
	}
	digits := strings.TrimRight(s, "abcdefghijklmnopqrstuvwxyz")
	n, err := strconv.ParseInt(digits, 10, 32)
	unit, known := pgUnits[s[len(digits):]]
	if err != nil || !known {
		return 0, fmt.Errorf("read wal_sender_timeout: %q is no duration", s)
	}
	return time.Duration(n) * unit, nil
}

// Identify asks who the server is and where it comes from.
func (c *Conn) Identify(ctx context.Context) (Identity, error) {
	r, err := pglogrepl.IdentifySystem(ctx, c.pg)
	if sqlState(err) == stateSyntaxError { // somebody dropped the parameter that asks for replication
		return Identity{}, fmt.Errorf("identify the server: %w: %w", ErrPooler, err)
	}
	if err != nil {
		return Identity{}, fmt.Errorf("identify the server: %w", classify(err))
	}
	id := Identity{SystemID: r.SystemID, Timeline: uint32(r.Timeline), Flushed: r.XLogPos, Database: r.DBName}
	if r.Timeline > 1 { // the first has no history file
		id.Left, err = c.history(ctx, r.Timeline)
	}
	return id, err
}

// history reads lines of "timeline <tab> switch point <tab> reason".
func (c *Conn) history(ctx context.Context, timeline int32) (map[uint32]pglogrepl.LSN, error) {
	r, err := pglogrepl.TimelineHistory(ctx, c.pg, timeline)
	if err != nil {
		return nil, fmt.Errorf("read the history of timeline %d: %w", timeline, classify(err))
	}
	left := make(map[uint32]pglogrepl.LSN)
	for line := range strings.Lines(string(r.Content)) {
		fields := strings.Fields(line)
		if len(fields) < 2 || strings.HasPrefix(fields[0], "#") {
			continue
		}
		id, err := strconv.ParseUint(fields[0], 10, 32)
		if err != nil {
			return nil, fmt.Errorf("read the history of timeline %d: %w", timeline, err)
		}
		if left[uint32(id)], err = pglogrepl.ParseLSN(fields[1]); err != nil {
			return nil, fmt.Errorf("read the history of timeline %d: %w", timeline, err)
		}
	}
	return left, nil
}

// Stream says what to stream.
type Stream struct {
	Slot, Publication string
	Binary            bool
	// PassOver goes on where the publication was not there yet when changes were
	// made, as far as the server does (PostgreSQL 18): somebody has accepted that.
	PassOver bool
}

// Start takes the slot and begins to stream from its own confirmed position.
// ErrSlotBusy means that another walsender holds it. From here on the reader
// goroutine owns what comes in.
func (c *Conn) Start(ctx context.Context, s Stream) error {
	args := []string{
		"proto_version '1'",
		"publication_names " + quoteLiteral(quoteIdentifier(s.Publication)),
	}
	if s.Binary {
		args = append(args, "binary 'true'")
	}
	began := c.sinceBorn()
	err := pglogrepl.StartReplication(ctx, c.pg, quoteIdentifier(s.Slot), 0, pglogrepl.StartReplicationOptions{
		Mode: pglogrepl.LogicalReplication, PluginArgs: args,
	})
	if err != nil {
		return fmt.Errorf("start replication on slot %q: %w", s.Slot, classify(err))
	}
	c.toldAt.Store(began)
	c.Reader = newReader(c.messages.in)
	c.passOver = s.PassOver
	c.done = make(chan struct{})
	go func() {
		defer close(c.done)
		c.run()
	}()
	return nil
}

// MakeFailover makes an existing slot that nobody holds a failover slot, which a
// statement of SQL cannot. ErrSlotBusy means that somebody does.
func (c *Conn) MakeFailover(ctx context.Context, slot string) error {
	if _, err := c.pg.Exec(ctx, alterFailover(slot)).ReadAll(); err != nil {
		return fmt.Errorf("make slot %q a failover slot: %w", slot, classify(err))
	}
	return nil
}

func alterFailover(slot string) string {
	return "ALTER_REPLICATION_SLOT " + quoteIdentifier(slot) + " (FAILOVER true)"
}

// CreateTemporarySlot makes a slot that lives as long as this connection and
// returns where its stream begins.
func (c *Conn) CreateTemporarySlot(ctx context.Context, name string) (pglogrepl.LSN, error) {
	r, err := pglogrepl.CreateReplicationSlot(ctx, c.pg, quoteIdentifier(name), "pgoutput", pglogrepl.CreateReplicationSlotOptions{
		Temporary: true, SnapshotAction: "NOEXPORT_SNAPSHOT", Mode: pglogrepl.LogicalReplication,
	})
	if err != nil {
		return 0, fmt.Errorf("create temporary slot %q: %w", name, classify(err))
	}
	return pglogrepl.ParseLSN(r.ConsistentPoint)
}

// CopySlot makes a slot that lives as long as this connection, at the place of
// another one, which may be in use.
func (c *Conn) CopySlot(ctx context.Context, from, name string) error {
	sql := fmt.Sprintf("SELECT pg_copy_logical_replication_slot(%s, %s, true)", quoteLiteral(from), quoteLiteral(name))
	if _, err := c.pg.Exec(ctx, sql).ReadAll(); err != nil {
		return fmt.Errorf("copy slot %q: %w", from, classify(err))
	}
	return nil
}

func quoteIdentifier(s string) string { return pgx.Identifier{s}.Sanitize() }

func quoteLiteral(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }

// SendStatus writes a standby status update.
func (c *Conn) SendStatus(received, confirmed pglogrepl.LSN, wantReply bool) error {
	b := append(c.status[:0], msgCopyData)
	b = binary.BigEndian.AppendUint32(b, 4+decode.StatusUpdateSize)
	c.status = decode.AppendStatusUpdate(b, received, confirmed, time.Now(), wantReply)
	return c.write(c.status)
}

func (c *Conn) write(b []byte) error {
	socket, began := c.pg.Conn(), c.sinceBorn()
	if err := socket.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil {
		return fmt.Errorf("%w: %w", ErrStreamEnded, err)
	}
	if _, err := socket.Write(b); err != nil {
		return fmt.Errorf("%w: write: %w", ErrStreamEnded, err)
	}
	c.toldAt.Store(began)
	return nil
}

// Finish ends the stream in order: CopyDone, then the server's own end. When it
// returns nil, the server has read every status sent before.
func (c *Conn) Finish(ctx context.Context) error {
	if err := c.write([]byte{msgCopyDone, 0, 0, 0, 4}); err != nil {
		return err
	}
	for {
		select {
		case b, ok := <-c.Batches():
			if ok {
				c.Release(b)
				continue
			}
			if errors.Is(c.Err(), io.EOF) {
				return nil
			}
			return c.Err()
		case <-ctx.Done():
			return fmt.Errorf("wait for the server to end the stream: %w", ctx.Err())
		}
	}
}

// Close leaves at once and waits for the reader goroutine.
func (c *Conn) Close() {
	socket := c.pg.Conn()
	if c.done == nil {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = c.pg.Close(ctx) // the error says only that the connection was gone already
		return
	}
	_ = socket.SetWriteDeadline(time.Now().Add(time.Second))
	_, _ = socket.Write([]byte{'X', 0, 0, 0, 4}) // Terminate: the walsender need not find out by itself
	close(c.stop)
	_ = socket.SetReadDeadline(time.Unix(1, 0))
	_ = socket.Close()      // only says that it was gone already
	for range c.Batches() { // make room until the reader has seen it
	}
	<-c.done
}
