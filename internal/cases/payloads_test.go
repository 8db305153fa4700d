package cases

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/walstream/walstream/internal/service"
)

// Whatever becomes of a row that cannot be published, what is in it stands in no log
// line, answer or page, at debug neither: its ids say which one it is.
func TestC60PayloadsAreNotShown(t *testing.T) {
	t.Parallel()
	const payload, header = "payload-of-account-4711", "header-of-account-4711"
	for name, bad := range map[string]string{
		"too large": `INSERT INTO bank_outbox (aggregate_type, aggregate_id, event_type, payload, headers)
			SELECT 'account', 'acc-1', 'deposited', to_jsonb('` + payload + `' || string_agg(md5(random()::text), '')), '{"trace": "` + header + `"}' FROM generate_series(1, 80000)`,
		"headers that are none": `INSERT INTO bank_outbox (aggregate_type, aggregate_id, event_type, payload, headers)
			VALUES ('account', 'acc-1', 'deposited', '{"of": "` + payload + `"}', '["` + header + `"]')`,
	} {
		for _, policy := range []string{"stop", "dead-letter", "skip"} {
			t.Run(name+" "+policy, func(t *testing.T) {
				r := sharedRig(t)
				log := &locked{}
				s, err := service.Start(service.Options{Binary: r.binary, Args: r.args("--log-level", "debug", "--on-poison", policy), Log: log})
				r.check(err)
				defer s.Kill()
				r.check(s.WaitStreaming(r.ctx))
				r.put(1)
				r.untilConfirmed()
				r.exec(bad)
				said := ""
				if policy == "stop" {
					if code := r.ends(s, 30*time.Second); code != 6 {
						t.Errorf("exit code %d, want 6\n%s", code, s.Log())
					}
				} else {
					r.untilConfirmed()
					for _, path := range []string{"/", "/status", "/metrics", "/healthz"} {
						code, body, err := s.Get(r.ctx, path)
						if err != nil || code != http.StatusOK {
							t.Errorf("GET %s: %d (%v)", path, code, err)
						}
						said += fmt.Sprintf("GET %s: %s\n", path, body)
					}
					r.check(s.Stop(20 * time.Second))
				}
				var id string
				r.check(r.db.QueryRow(r.ctx, `SELECT id::text FROM bank_outbox ORDER BY seq DESC LIMIT 1`).Scan(&id))
				if said += log.String(); !strings.Contains(said, id) {
					t.Errorf("nobody says which row it was, %s", id)
				}
				for _, secret := range []string{payload, header} {
					if i := strings.Index(said, secret); i >= 0 {
						t.Errorf("shown: ...%s...", said[max(0, i-300):min(len(said), i+100)])
					}
				}
			})
		}
	}
}
