package testenv

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

func TestMain(m *testing.M) {
	if os.Getenv("TESTENV_ORPHAN") != "" {
		orphan()
	}
	if os.Getenv("TESTENV_ONCE") != "" {
		startOnce()
	}
	os.Exit(Main(m).Run())
}

// query returns one value as text.
func query(t *testing.T, dsn, sql string) string {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.Background()) }()
	var value string
	if err := conn.QueryRow(t.Context(), sql).Scan(&value); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return value
}

func TestSharedPostgres(t *testing.T) {
	for _, major := range Majors() {
		t.Run(fmt.Sprint(major), func(t *testing.T) {
			p := SharedPostgres(t, major)
			if again := SharedPostgres(t, major); again != p {
				t.Error("a second server was started")
			}
			if p.Major != major {
				t.Errorf("major %d, asked for %d", p.Major, major)
			}
			dsn := p.CreateDatabase(t)
			for sql, want := range map[string]string{
				"SHOW wal_level":             "logical",
				"SHOW server_encoding":       "UTF8",
				"SHOW max_replication_slots": "20",
				"SELECT count(*)::text FROM pg_create_logical_replication_slot(current_database(), 'pgoutput')": "1",
				"SELECT rolsuper::text FROM pg_roles WHERE rolname = current_user":                              "true",
			} {
				if got := query(t, dsn, sql); got != want {
					t.Errorf("%s: %s, want %s", sql, got, want)
				}
			}
		})
	}
}

func TestSharedPostgresOfAnyMajorIsTheNewest(t *testing.T) {
	if os.Getenv(EnvPostgresURL) != "" {
		t.Skip("skipped: the servers are given")
	}
	if newest, latest := SharedPostgres(t, NewestMajor), SharedPostgres(t, 0); newest != latest {
		t.Errorf("two servers of %d were started", NewestMajor)
	}
}

func TestCreateDatabaseIsDroppedWithItsSlots(t *testing.T) {
	p := SharedPostgres(t, 0)
	var name string
	t.Run("inner", func(t *testing.T) {
		dsn := p.CreateDatabase(t)
		name = query(t, dsn, "SELECT current_database()")
		query(t, dsn, "SELECT slot_name FROM pg_create_logical_replication_slot('"+name+"', 'pgoutput')")
		conn, err := pgx.Connect(t.Context(), dsn) // left open on purpose
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close(context.Background()) })
	})
	for _, sql := range []string{
		"SELECT count(*)::text FROM pg_database WHERE datname = '" + name + "'",
		"SELECT count(*)::text FROM pg_replication_slots WHERE database = '" + name + "'",
	} {
		if got := query(t, p.DSN(""), sql); got != "0" {
			t.Errorf("%s: %s", sql, got)
		}
	}
}

func TestPostgresStops(t *testing.T) {
	p := NewPostgres(t, PGOptions{Params: map[string]string{"cluster_name": `it's a \ test`}})
	if got := query(t, p.DSN(""), "SHOW cluster_name"); got != `it's a \ test` {
		t.Errorf("cluster_name %s", got)
	}
	testPostgresStops(t, p)
}

// testPostgresStops: a server keeps its data and port however it ended.
func testPostgresStops(t *testing.T, p *Postgres) {
	dsn, port := p.CreateDatabase(t), p.Port
	if err := p.Exec(t.Context(), "", "ALTER SYSTEM SET wal_sender_timeout = '5s'"); err != nil {
		t.Fatal(err)
	}
	database := query(t, dsn, "SELECT current_database()")
	if err := p.Exec(t.Context(), database, "CREATE TABLE kept (how text)"); err != nil {
		t.Fatal(err)
	}
	stops := map[string]func() error{
		"fast":      func() error { return p.Stop("fast") },
		"smart":     func() error { return p.Stop("smart") },
		"immediate": func() error { return p.Stop("immediate") },
		"kill":      p.Kill,
	}
	for how, stop := range stops {
		if err := p.Exec(t.Context(), database, "INSERT INTO kept VALUES ('"+how+"')"); err != nil {
			t.Fatalf("%s: %v", how, err)
		}
		if err := stop(); err != nil {
			t.Fatalf("%s: %v", how, err)
		}
		if pid := p.Pid(); pid != 0 {
			t.Errorf("%s: process %d is still there", how, pid)
		}
		if err := p.Start(t.Context()); err != nil {
			t.Fatalf("%s: %v", how, err)
		}
		if got := query(t, dsn, "SELECT count(*)::text FROM kept WHERE how = '"+how+"'"); got != "1" || p.Port != port {
			t.Errorf("%s: %s rows kept, port %d, was %d", how, got, p.Port, port)
		}
	}
	if got := query(t, dsn, "SHOW wal_sender_timeout"); got != "5s" {
		t.Errorf("ALTER SYSTEM did not last: %s", got)
	}
}

func TestPostgresStartFails(t *testing.T) {
	_, err := StartPostgres(t.Context(), PGOptions{Params: map[string]string{"wal_level": "nonsense"}})
	if err == nil || !strings.Contains(err.Error(), `invalid value for parameter "wal_level"`) {
		t.Errorf("the error does not show the log: %v", err)
	}
}

func TestPostgresHBA(t *testing.T) {
	t.Setenv(EnvFrom, Native)
	p := NewPostgres(t, PGOptions{HBA: []string{"host all refused 127.0.0.1/32 reject"}})
	if err := p.Exec(t.Context(), "", "CREATE ROLE refused LOGIN PASSWORD 'x'"); err != nil {
		t.Fatal(err)
	}
	as := *p
	as.User, as.Password = "refused", "x"
	if err := as.Exec(t.Context(), "postgres", "SELECT 1"); err == nil || !strings.Contains(err.Error(), "28000") {
		t.Errorf("the line of pg_hba.conf did not hold: %v", err)
	}
	as.User, as.Password = p.User, "wrong"
	if err := as.Exec(t.Context(), "postgres", "SELECT 1"); err == nil || !strings.Contains(err.Error(), "28P01") {
		t.Errorf("a wrong password got in: %v", err)
	}
}

// orphan is what the test below runs and kills: a program with a server.
func orphan() {
	p, err := StartPostgres(context.Background(), PGOptions{})
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println(p.Pid(), p.DataDir)
	select {}
}

func eventually(t *testing.T, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !done(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("in vain: %s", what)
		}
	}
}
