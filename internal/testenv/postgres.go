package testenv

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
)

// PGOptions says what PostgreSQL is wanted. The zero value is a throw-away
// server of the newest supported major.
type PGOptions struct {
	// Major is 15 to 18; 0 takes the newest, or the newest found where that
	// cannot be fetched.
	Major int
	// Params are server settings over ours (wal_level=logical and the like).
	Params map[string]string
	// HBA are pg_hba.conf lines put before ours, the first match deciding.
	HBA []string
	// Durable leaves fsync on. Without it a killed server keeps its data, a
	// killed machine does not.
	Durable bool
	// DataDir is kept, and used again when it holds data of the same major.
	// Empty: a temporary one.
	DataDir string
	// Port is fixed; 0 takes a free one below the ephemeral range.
	Port int
}

// Postgres is a running PostgreSQL with a superuser.
type Postgres struct {
	Host           string
	Port           int
	User, Password string
	Major          int
	From           string // Given, Docker or Native
	// DataDir, BinDir and SocketDir are empty unless native. BinDir holds
	// initdb and postgres; psql and the other clients only when it was found.
	DataDir, BinDir, SocketDir string

	server   pgServer // nil when given
	database string   // of the given URL
	query    url.Values
}

// pgServer is a server that we may stop.
type pgServer interface {
	start(ctx context.Context) error
	stop(mode string, wait time.Duration) error
	kill() error
	pid() int
	running() bool
	log() string
	close()
}

// stopWait bounds Stop. A fast shutdown waits for walsenders, hence for whoever
// reads them.
const stopWait = 60 * time.Second

// StartPostgres starts a server of its own, for programs. Close ends it.
func StartPostgres(ctx context.Context, o PGOptions) (*Postgres, error) {
	return startPostgres(ctx, o, false)
}

// startPostgres takes the given server only for callers that share it.
func startPostgres(ctx context.Context, o PGOptions, shared bool) (*Postgres, error) {
	if o.Major != 0 && (o.Major < OldestMajor || o.Major > NewestMajor) {
		return nil, fmt.Errorf("PostgreSQL %d: supported are %d to %d", o.Major, OldestMajor, NewestMajor)
	}
	what := "PostgreSQL"
	if o.Major != 0 {
		what = fmt.Sprintf("PostgreSQL %d", o.Major)
	}
	return firstOf(what,
		way[*Postgres]{Given, func() (*Postgres, error) { return givenPostgres(ctx, o.Major, shared) }},
		way[*Postgres]{Docker, func() (*Postgres, error) { return dockerPostgres(ctx, o) }},
		way[*Postgres]{Native, func() (*Postgres, error) { return nativePostgres(ctx, o) }},
	)
}

// givenPostgres connects to the server of the environment.
func givenPostgres(ctx context.Context, major int, shared bool) (*Postgres, error) {
	name := EnvPostgresURL
	if major != 0 && os.Getenv(name+"_"+strconv.Itoa(major)) != "" {
		name += "_" + strconv.Itoa(major)
	}
	text := os.Getenv(name)
	if text == "" {
		return nil, closed("%s is not set", name)
	}
	if !shared {
		return nil, closed("the server of %s may not be stopped or set up", name)
	}
	at, err := url.Parse(text)
	if err != nil || at.User == nil || at.Hostname() == "" {
		return nil, fmt.Errorf("%s: not a URL like postgres://user:password@host:port/database", name)
	}
	port := 5432
	if at.Port() != "" {
		port, _ = strconv.Atoi(at.Port())
	}
	password, _ := at.User.Password()
	p := &Postgres{
		Host: at.Hostname(), Port: port, User: at.User.Username(), Password: password, From: Given,
		database: "postgres", query: at.Query(),
	}
	if len(at.Path) > 1 {
		p.database = at.Path[1:]
	}
	if err := p.ready(ctx); err != nil {
		return nil, err
	}
	if major != 0 && p.Major != major {
		return nil, closed("the server of %s is a PostgreSQL %d", name, p.Major)
	}
	return p, nil
}

// DSN returns the URL of a database, "" being the superuser's own.
func (p *Postgres) DSN(database string) string {
	if database == "" {
		database = p.database
	}
	if database == "" {
		database = "postgres"
	}
	at := url.URL{
		Scheme: "postgres", User: url.UserPassword(p.User, p.Password),
		Host: net.JoinHostPort(p.Host, strconv.Itoa(p.Port)), Path: "/" + database,
	}
	query := p.query
	if query == nil {
		query = url.Values{"sslmode": {"disable"}}
	}
	at.RawQuery = query.Encode()
	return at.String()
}

// Pid is the postmaster's process id, 0 when it is not a process of ours.
func (p *Postgres) Pid() int {
	if p.server == nil || !p.server.running() {
		return 0
	}
	return p.server.pid()
}

// Stop stops the server, "fast", "smart" or "immediate", and waits for its end.
func (p *Postgres) Stop(mode string) error {
	if p.server == nil {
		return fmt.Errorf("stop PostgreSQL: a server that was given is not ours to stop")
	}
	if err := p.server.stop(mode, stopWait); err != nil {
		return fmt.Errorf("stop PostgreSQL on port %d (%s): %w", p.Port, mode, err)
	}
	return nil
}

// Kill ends all of the server's processes at once and waits for their end.
func (p *Postgres) Kill() error {
	if p.server == nil {
		return fmt.Errorf("kill PostgreSQL: a server that was given is not ours to kill")
	}
	return p.server.kill()
}

// Start starts a stopped or killed server on the same data and port, and
// returns when it answers.
func (p *Postgres) Start(ctx context.Context) error {
	if p.server == nil {
		return fmt.Errorf("start PostgreSQL: a server that was given is not ours to start")
	}
	if p.server.running() {
		return fmt.Errorf("start PostgreSQL: the server on port %d runs", p.Port)
	}
	if err := p.server.start(ctx); err != nil {
		return err
	}
	return p.ready(ctx)
}

// Restart is a fast Stop and a Start.
func (p *Postgres) Restart(ctx context.Context) error {
	if err := p.Stop("fast"); err != nil {
		return err
	}
	return p.Start(ctx)
}

// Log is the end of the server's log.
func (p *Postgres) Log() string {
	if p.server == nil {
		return "(the log of a given server is not ours to read)"
	}
	return p.server.log()
}

// Close ends the server and removes its data if that is temporary.
func (p *Postgres) Close() {
	if p.server != nil {
		p.server.close()
	}
}

// startTimeout bounds a server's start. Three brokers on a machine that also
// runs other packages' tests have taken half of it.
const startTimeout = 120 * time.Second

// ready waits until the server answers a query, and learns its major.
func (p *Postgres) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for {
		err := p.learnMajor(ctx)
		if err == nil {
			return nil
		}
		if p.server != nil && !p.server.running() {
			return fmt.Errorf("PostgreSQL on port %d ended during its start: %w\n%s", p.Port, err, p.Log())
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("PostgreSQL on port %d does not answer: %w\n%s", p.Port, err, p.Log())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func (p *Postgres) learnMajor(ctx context.Context) error {
	conn, err := pgx.Connect(ctx, p.DSN(""))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	return conn.QueryRow(ctx, "SELECT current_setting('server_version_num')::int / 10000").Scan(&p.Major)
}

// Exec runs statements as the superuser, one after the other, on a connection
// of their own.
func (p *Postgres) Exec(ctx context.Context, database string, statements ...string) error {
	conn, err := pgx.Connect(ctx, p.DSN(database))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	for _, statement := range statements {
		if _, err := conn.Exec(ctx, statement); err != nil {
			return fmt.Errorf("%s: %w", statement, err)
		}
	}
	return nil
}
