package cases

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/walstream/walstream/internal/testenv"
)

// guarded is a broker with logins and rights for whoever comes in by its proxy;
// the tests go around both. It takes no request of more than 5 MB.
func guarded(t *testing.T) (*testenv.Kafka, *testenv.Proxy) {
	t.Helper()
	kafka := testenv.NewKafka(t, testenv.KafkaOptions{Real: true, Props: map[string]string{
		"listener.security.protocol.map":              "DIRECT:PLAINTEXT,BEHIND:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
		"sasl.enabled.mechanisms":                     "PLAIN",
		"listener.name.behind.plain.sasl.jaas.config": `org.apache.kafka.common.security.plain.PlainLoginModule required user_writer="secret";`,
		"authorizer.class.name":                       "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
		"super.users":                                 "User:ANONYMOUS",
		"socket.request.max.bytes":                    "5000000",
	}})
	return kafka, kafka.NewProxy(t)
}

// A right that is taken away is named with its resource, the position is held,
// and after it is given back the next start goes on.
func TestC50Rights(t *testing.T) {
	t.Parallel()
	kafka, proxy := guarded(t)
	pg := testenv.SharedPostgres(t, 0)
	login := []string{"--kafka-sasl-mechanism", "plain", "--kafka-sasl-user", "writer", "--kafka-sasl-password", "secret"}
	writer := func() *kadm.ACLBuilder { return kadm.NewACLs() }
	for name, c := range map[string]struct {
		deny func(r *rig) *kadm.ACLBuilder
		says func(r *rig) []string
	}{
		"write on the topic": {
			func(r *rig) *kadm.ACLBuilder { return writer().Topics(r.topic).Operations(kadm.OpWrite) },
			func(r *rig) []string { return []string{"the right Write on topic", r.topic} },
		},
		"write on the checkpoint topic": {
			func(r *rig) *kadm.ACLBuilder {
				return writer().Topics("walstream.checkpoints." + r.pipeline).Operations(kadm.OpWrite)
			},
			func(r *rig) []string { return []string{"the right Write on", "walstream.checkpoints." + r.pipeline} },
		},
		"write on the transactional ids": {
			func(r *rig) *kadm.ACLBuilder {
				return writer().TransactionalIDs("walstream."+r.pipeline+".0", "walstream."+r.pipeline+".1").Operations(kadm.OpWrite)
			},
			func(r *rig) []string {
				return []string{"the right Write on", "transactional id", "walstream." + r.pipeline}
			},
		},
		"describe on the topic": { // known while it streams; asked for by the next start
			func(r *rig) *kadm.ACLBuilder { return writer().Topics(r.topic).Operations(kadm.OpDescribe) },
			func(r *rig) []string { return []string{"the right Describe on topic", r.topic} },
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBoth(t, func(t *testing.T) {
				r := newRig(t, pg, kafka.Brokers)
				r.brokersSeen = proxy.Addrs
				r.allow()
				s := r.warm(login...)
				r.acl(c.deny(r).Deny("User:writer").DenyHosts("*").ResourcePatternType(kadm.ACLPatternLiteral))
				if strings.HasPrefix(name, "describe") {
					r.check(s.Stop(10 * time.Second))
					s = r.start(login...)
				}
				confirmed, _ := r.confirmed()
				for n := 0; !ended(s.Done()) && n < 300; n++ {
					r.put(1)
					time.Sleep(100 * time.Millisecond)
				}
				end := r.walEnd()
				if code := r.ends(s, time.Second); code != 8 {
					t.Errorf("exit code %d, want 8\n%s", code, s.Log())
				}
				for _, part := range append(c.says(r), "User:writer", "kafka-acls.sh") {
					if !strings.Contains(s.Log(), part) {
						t.Errorf("the error does not say %s:\n%s", part, s.Log())
					}
				}
				if now, _ := r.confirmed(); now < confirmed || now >= end {
					t.Errorf("confirmed %s, from %s, with rows before %s unpublished", now, confirmed, end)
				}
				if strings.Contains(s.Log(), "secret") {
					t.Error("the password is in the log")
				}
				deny := c.deny(r).Deny("User:writer").DenyHosts("*").ResourcePatternType(kadm.ACLPatternLiteral)
				_, err := r.admin.DeleteACLs(r.ctx, deny)
				r.check(err)
				r.stream(login...)
				r.untilConfirmed()
				if duplicates := r.verify(); duplicates > 0 {
					t.Logf("%d duplicates", duplicates)
				}
			})
		})
	}
	t.Run("request larger than the broker takes", func(t *testing.T) {
		inBoth(t, func(t *testing.T) {
			r := newRig(t, pg, kafka.Brokers)
			r.brokersSeen = proxy.Addrs
			r.allow()
			s := r.warm(append(login, "--stall-timeout", "3s", "--status-interval", "1s")...)
			r.alter(r.topic, "max.message.bytes", "30000000")
			r.check(s.Stop(10 * time.Second)) // the new limit is read at the start
			s = r.stream(append(login, "--stall-timeout", "3s", "--status-interval", "1s")...)
			r.exec(large, 6_000_000)
			end := r.walEnd()
			r.until("red health that names the setting", func() bool {
				return strings.Contains(r.healthTurns(s, http.StatusServiceUnavailable), "socket.request.max.bytes")
			})
			r.notBeyond(end)
		})
	})
}

func ended(done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	default:
		return false
	}
}

// allow gives the writer what walstream needs.
func (r *rig) allow() {
	r.t.Helper()
	for _, b := range []*kadm.ACLBuilder{
		kadm.NewACLs().Topics(r.topic, "walstream.checkpoints."+r.pipeline, "walstream.history."+r.pipeline).
			Operations(kadm.OpRead, kadm.OpWrite, kadm.OpCreate, kadm.OpDescribe, kadm.OpDescribeConfigs),
		kadm.NewACLs().TransactionalIDs("walstream."+r.pipeline).Operations(kadm.OpWrite, kadm.OpDescribe),
	} {
		r.acl(b.Allow("User:writer").AllowHosts("*").ResourcePatternType(kadm.ACLPatternPrefixed))
	}
}

func (r *rig) acl(b *kadm.ACLBuilder) {
	r.t.Helper()
	results, err := r.admin.CreateACLs(r.ctx, b)
	r.check(err)
	for _, result := range results {
		r.check(result.Err)
	}
}

// large is a row of about $1 bytes that hardly compress.
const large = `INSERT INTO bank_outbox (aggregate_type, aggregate_id, event_type, payload)
	SELECT 'account', 'large', 'deposited', to_jsonb(string_agg(md5(random()::text), '')) FROM generate_series(1, $1::int / 32)`

// A row that is too large for its topic ends the stream there: what lies before it
// is published and nothing behind it. With the limit raised, the next start goes on.
func TestC48RowTooLarge(t *testing.T) { inBothAtOnce(t, rowTooLarge) }

func rowTooLarge(t *testing.T) {
	r := sharedRig(t)
	args := []string{"--kafka-compression", "zstd"}
	if r.delivery == atLeastOnce {
		args[1] = "none"
	}
	s := r.warm(args...)
	s.Kill()
	r.put(20)
	size := 5_000_000
	if full() {
		size = 20_000_000
	}
	r.exec(large, size)
	end := r.walEnd()
	r.put(20)
	var id string
	r.check(r.db.QueryRow(r.ctx, `SELECT id::text FROM bank_outbox WHERE aggregate_id = 'large'`).Scan(&id))
	for range 2 { // the second start stands before it at once
		s = r.start(args...)
		if code := r.ends(s, 30*time.Second); code != 6 {
			t.Errorf("exit code %d, want 6\n%s", code, s.Log())
		}
		for _, part := range []string{id, r.topic, fmt.Sprint("its ", size/10_000), "max.message.bytes of 1048588", "kafka-configs.sh"} {
			if !strings.Contains(s.Log(), part) {
				t.Errorf("the error does not say %s:\n%s", part, s.Log())
			}
		}
		r.markersWritten(r.topic)
		if got := len(r.published()); got != 1+20 {
			t.Errorf("%d records, want the 21 before the row", got)
		}
		r.notBeyond(end)
	}
	r.alter(r.topic, "max.message.bytes", fmt.Sprint(2*size))
	r.stream(args...)
	r.untilConfirmed()
	if duplicates := r.verify(); duplicates != 0 {
		t.Errorf("%d duplicates", duplicates)
	}
}
