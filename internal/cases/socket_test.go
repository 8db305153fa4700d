package cases

import (
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/walstream/walstream/internal/testenv"
)

// The server's Unix socket in both forms of an address; whatever sslmode says, a
// socket has no TLS, as with libpq.
func TestUnixSocket(t *testing.T) {
	t.Parallel()
	pg := testenv.SharedPostgres(t, 0)
	if pg.SocketDir == "" {
		t.Skip("skipped: the server has no Unix socket here")
	}
	r := newRig(t, pg, testenv.SharedKafka(t).Brokers)
	config, err := pgconn.ParseConfig(r.dsn)
	r.check(err)
	asURL := (&url.URL{Scheme: "postgres", Path: "/" + config.Database, RawQuery: url.Values{
		"host": {pg.SocketDir}, "port": {fmt.Sprint(pg.Port)}, "user": {config.User}, "sslmode": {"verify-full"},
	}.Encode()}).String()
	asDSN := fmt.Sprintf("host=%s port=%d user=%s dbname=%s sslmode=require", pg.SocketDir, pg.Port, config.User, config.Database)
	s := r.stream("--postgres", asURL)
	r.put(20)
	r.untilConfirmed()
	for _, command := range []string{"status", "check"} {
		if out, code := r.command([]string{command}, "--postgres", asDSN); code != 0 {
			t.Errorf("%s ended with %d:\n%s", command, code, out)
		} else if command == "status" && !strings.Contains(out, "active: PID") {
			t.Error(out)
		}
	}
	s.Kill()
	r.put(20)
	r.stream("--postgres", asDSN)
	r.untilConfirmed()
	if duplicates := r.verify(); duplicates != 0 {
		t.Errorf("%d duplicates, though everything was confirmed before the kill", duplicates)
	}
}
