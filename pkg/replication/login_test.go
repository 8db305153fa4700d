package replication

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgproto3"
)

// login opens the connections the way a start does, and returns the first error.
func login(t *testing.T, address string) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	o := Options{Postgres: address, ApplicationName: "x.y"}
	session, err := OpenSession(ctx, o)
	if err != nil {
		return err
	}
	defer session.Close()
	conn, err := Connect(ctx, o, 0)
	if err != nil {
		return err
	}
	conn.Close()
	return nil
}

// TestLoginRefused: what the server refuses at the door is told apart, is not
// tried for ever, and names the way out.
func TestLoginRefused(t *testing.T) {
	onEachMajor(t, func(t *testing.T, e *env) {
		role, strong := e.role(""), e.role("REPLICATION")
		shut := e.name("shut")
		e.exec("CREATE DATABASE " + shut)
		t.Cleanup(func() {
			if _, err := e.conn.Exec(context.Background(), "DROP DATABASE "+shut); err != nil {
				t.Error(err)
			}
		})
		e.exec("REVOKE CONNECT ON DATABASE " + shut + " FROM PUBLIC")
		cfg, err := pgx.ParseConfig(e.dsn)
		if err != nil {
			t.Fatal(err)
		}
		as := func(role, more string) string {
			return fmt.Sprintf("host=%s port=%d dbname=%s user=%s password=%[4]s sslmode=disable%s", cfg.Host, cfg.Port, cfg.Database, role, more)
		}
		for name, c := range map[string]struct {
			address string
			want    error
			says    []string
		}{
			"all is well":     {as(strong, ""), nil, nil},
			"no REPLICATION":  {as(role, ""), ErrMissingRight, []string{"the REPLICATION attribute", `ALTER ROLE "` + role + `" REPLICATION;`, "42501"}},
			"no CONNECT":      {as(role, " dbname="+shut), ErrMissingRight, []string{`CONNECT on database ` + shut, `GRANT CONNECT ON DATABASE "` + shut + `" TO "` + role + `";`}},
			"wrong password":  {as(strong, " password=wrong"), ErrAuthentication, nil},
			"no database":     {as(strong, " dbname=nowhere"), ErrNoDatabase, []string{"nowhere"}},
			"no such setting": {as(strong, " frobnicate=1"), ErrAddress, []string{"frobnicate"}},
			"no such value":   {as(strong, " work_mem=much"), ErrAddress, []string{"work_mem"}},
			"not theirs":      {as(strong, " log_statement=all"), ErrAddress, []string{"log_statement"}},
			"TLS preferred":   {as(strong, " sslmode=prefer"), nil, nil},
		} {
			t.Run(name, func(t *testing.T) {
				err := login(t, c.address)
				if c.want == nil {
					if err != nil {
						t.Fatal(err)
					}
					return
				}
				if !errors.Is(err, c.want) || Transient(err) {
					t.Fatalf("got %v (transient: %v), want %v", err, Transient(err), c.want)
				}
				for _, other := range []error{ErrMissingRight, ErrAuthentication, ErrNoDatabase, ErrAddress, ErrTLS, ErrUnreachable} {
					if !errors.Is(other, c.want) && errors.Is(err, other) {
						t.Errorf("%v is %v, too", err, other)
					}
				}
				for _, part := range c.says {
					if !strings.Contains(err.Error(), part) {
						t.Errorf("%q does not say %q", err, part)
					}
				}
			})
		}
	})
}

// A server that is away while TLS is asked for is waited for, and so is one of
// several hosts.
func TestNoTLSIsNotTakenForAway(t *testing.T) {
	server := port(plainServer(t))
	gone, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	away := port(gone)
	if err := gone.Close(); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, hosts, ports, mode string
		want                     error
	}{
		{"no TLS", "127.0.0.1", server, "require", ErrTLS},
		{"no TLS, stricter", "127.0.0.1", server, "verify-full", ErrTLS},
		{"no TLS, and none needed", "127.0.0.1", server, "prefer", ErrUnreachable}, // it hangs up
		{"away", "127.0.0.1", away, "require", ErrUnreachable},
		{"one is away", "127.0.0.1,127.0.0.1", server + "," + away, "require", ErrUnreachable},
		{"none has TLS", "127.0.0.1,127.0.0.1", server + "," + server, "require", ErrTLS},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := login(t, "host="+c.hosts+" port="+c.ports+" user=u dbname=d sslmode="+c.mode)
			if !errors.Is(err, c.want) || Transient(err) != (c.want == ErrUnreachable) {
				t.Errorf("got %v, want %v", err, c.want)
			}
			if c.want == ErrTLS && (!strings.Contains(err.Error(), "sslmode="+c.mode+" ") || !strings.Contains(err.Error(), "sslmode=prefer")) {
				t.Errorf("%v names no way out", err)
			}
		})
	}
}

// plainServer answers as a server does that has ssl = off, and hangs up.
func plainServer(t *testing.T) net.Listener {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			request := make([]byte, 8)
			if _, err := io.ReadFull(conn, request); err == nil && request[6] == 22 && request[7] == 47 { // SSLRequest: 80877103
				_, _ = conn.Write([]byte{'N'})
			}
			_ = conn.Close()
		}
	}()
	return listener
}

// A certificate that does not prove the server needs a person, too.
func TestCertificateThatProvesNothing(t *testing.T) {
	web := httptest.NewTLSServer(nil) // for its certificate
	defer web.Close()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			if _, err := io.ReadFull(conn, make([]byte, 8)); err == nil {
				_, _ = conn.Write([]byte{'S'})
				_ = tls.Server(conn, web.TLS).HandshakeContext(t.Context())
			}
			_ = conn.Close()
		}
	}()
	for _, mode := range []string{"verify-ca", "verify-full"} {
		err := login(t, "host=127.0.0.1 port="+port(listener)+" user=u dbname=d sslmode="+mode)
		if !errors.Is(err, ErrTLS) || Transient(err) || !strings.Contains(err.Error(), "sslmode="+mode) || !strings.Contains(err.Error(), "sslrootcert") {
			t.Errorf("%s: got %v", mode, err)
		}
	}
}

// TestC30Pooler: a pooler says no in words of its own, which PgBouncer 1.18 has been
// seen to use; that needs a person. That it has lost its server does not.
func TestC30Pooler(t *testing.T) {
	for _, c := range []struct {
		message string
		pooler  bool
	}{
		{"unsupported startup parameter: lock_timeout", true},
		{"unsupported startup parameter in options: wal_sender_timeout", true},
		{"replication connections are not supported", true},
		{"server login has been failing, try again later (server_login_retry)", false},
	} {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			for {
				conn, err := listener.Accept()
				if err != nil {
					return
				}
				length := make([]byte, 4)
				if _, err := io.ReadFull(conn, length); err == nil {
					_, _ = io.CopyN(io.Discard, conn, int64(length[2])<<8+int64(length[3])-4)
				}
				answer, _ := (&pgproto3.ErrorResponse{Severity: "FATAL", Code: "08P01", Message: c.message}).Encode(nil)
				_, _ = conn.Write(answer)
				_ = conn.Close()
			}
		}()
		for name, open := range map[string]func(ctx context.Context, o Options) error{
			"query address":       func(ctx context.Context, o Options) error { _, err := OpenSession(ctx, o); return err },
			"replication address": func(ctx context.Context, o Options) error { _, err := Connect(ctx, o, 0); return err },
		} {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			err := open(ctx, Options{Postgres: "host=127.0.0.1 port=" + port(listener) + " user=u dbname=d sslmode=disable", ApplicationName: "x.y"})
			cancel()
			if errors.Is(err, ErrPooler) != c.pooler || Transient(err) == c.pooler {
				t.Errorf("%s, %q: got %v (transient: %v)", name, c.message, err, Transient(err))
			}
		}
		_ = listener.Close()
	}
}

func port(l net.Listener) string { return strconv.Itoa(l.Addr().(*net.TCPAddr).Port) }
