// Package testenv gives tests, the demo, the benchmarks and CI real servers to
// run against: PostgreSQL, Kafka, and a proxy that breaks the connections to
// them.
//
// A server is taken from the first of these that has one:
//
//	given    an address in the environment      WALSTREAM_TEST_POSTGRES_URL, WALSTREAM_TEST_KAFKA_BROKERS
//	docker   a container, where an engine answers
//	native   PostgreSQL's programs, found here or fetched; Kafka's jars from Maven, run by this machine's Java
//	kfake    franz-go's in-process fake (Kafka only), always with a line that says so
//
// What cannot be had skips the test with one line that names what was missing,
// or fails it when WALSTREAM_TEST_REQUIRE_REAL is set, as it is in CI.
//
//	var p = testenv.SharedPostgres(t, 18)   // one server for the test process
//	dsn := p.CreateDatabase(t)              // a database of this test's own, dropped with its slots
//
//	own := testenv.NewPostgres(t, testenv.PGOptions{})
//	own.Stop("immediate"); own.Start(ctx)   // same data, same port
//
//	k := testenv.SharedKafka(t)             // k.Brokers
//
// A package whose tests use shared servers ends with
//
//	func TestMain(m *testing.M) { os.Exit(testenv.Main(m).Run()) }
//
// which stops them and removes their data. With goleak it is
// goleak.VerifyTestMain(testenv.Main(m)); a check inside a test ignores the
// goroutines that wait for servers:
// goleak.IgnoreAnyFunction("github.com/walstream/walstream/internal/testenv.(*child).run").
//
// Invariants:
//   - a server never outlives its parent: on Linux the kernel signals it
//     (Pdeathsig) even after kill -9. Its directory is removed by the next
//     program that starts a server.
//   - a port is claimed under a lock shared by all processes of the user, lies
//     below the ephemeral range, and stays the server's until it is closed, so
//     Stop and Start find it free.
//   - the cache is built under a lock, beside its place, and renamed into it:
//     what is there is whole.
//
// WALSTREAM_TEST_KAFKA_VERSION chooses another release of Kafka.
//
// To spare each package's tests their own servers, and in CI:
//
//	go run ./internal/testenv/cmd/testenv exec -pg 15,18 -kafka -- go test ./...
//
// What surprised us: pg_ctl daemonises, so whoever uses it leaves servers
// behind; the parent-death signal is sent when the forking *thread* ends, so a
// goroutine locked to its thread waits for each server; PostgreSQL refuses root,
// so a root user's cache is /var/cache/walstream, which others can reach, and
// PostgreSQL runs as nobody. A killed Kafka broker is refused by the controller
// until its session ends, so its next start takes five seconds more. franz-go's
// idempotent producer does not give up a record in flight when its context ends:
// behind a Blackhole, ProduceSync waits for Restore.
//
// Only tests, examples and benchmarks import this package: the walstream binary
// contains neither kfake nor embedded-postgres.
package testenv
