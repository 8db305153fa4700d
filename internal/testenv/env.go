package testenv

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// Environment variables read by this package.
const (
	// EnvPostgresURL is a superuser's URL of a server with wal_level=logical;
	// EnvPostgresURL + "_15" is one for tests that ask for major 15.
	EnvPostgresURL = "WALSTREAM_TEST_POSTGRES_URL"
	// EnvKafkaBrokers lists brokers, separated by commas.
	EnvKafkaBrokers = "WALSTREAM_TEST_KAFKA_BROKERS"
	// EnvKafkaVersion is the release of the brokers that are started, e.g. "3.9.1".
	EnvKafkaVersion = "WALSTREAM_TEST_KAFKA_VERSION"
	// EnvRequireReal set to 1 turns every skip and every fall-back to kfake
	// into a failure.
	EnvRequireReal = "WALSTREAM_TEST_REQUIRE_REAL"
	// EnvCache is where downloads and prepared data directories are kept.
	EnvCache = "WALSTREAM_TEST_CACHE"
	// EnvFrom limits the ways, e.g. "native,kfake". Unset: all of them.
	EnvFrom = "WALSTREAM_TEST_FROM"
	// EnvMajors lists the majors that Majors returns, e.g. "15,16,17,18".
	EnvMajors = "WALSTREAM_TEST_MAJORS"
)

// Where a server came from.
const (
	Given  = "given"
	Docker = "docker"
	Native = "native"
	Kfake  = "kfake"
)

// Supported PostgreSQL majors.
const (
	OldestMajor = 15
	NewestMajor = 18
)

// Majors returns the PostgreSQL majors a test that runs on several should run
// on: the oldest and the newest supported, or those of WALSTREAM_TEST_MAJORS.
func Majors() []int {
	text := os.Getenv(EnvMajors)
	if text == "" {
		return []int{OldestMajor, NewestMajor}
	}
	var majors []int
	for field := range strings.SplitSeq(text, ",") {
		major, err := strconv.Atoi(strings.TrimSpace(field))
		if err != nil || major < OldestMajor || major > NewestMajor {
			panic(fmt.Sprintf("testenv: %s=%q: each must be a number from %d to %d", EnvMajors, text, OldestMajor, NewestMajor))
		}
		majors = append(majors, major)
	}
	return majors
}

// UnavailableError says that a server cannot be had here, and why each way to
// one was closed. It skips a test; any other error fails it.
type UnavailableError struct {
	What    string
	Reasons []string
}

func (e *UnavailableError) Error() string {
	return fmt.Sprintf("no %s here: %s", e.What, strings.Join(e.Reasons, "; "))
}

func (e *UnavailableError) add(way string, err error) {
	e.Reasons = append(e.Reasons, way+": "+err.Error())
}

// closedError marks a way that is closed, as opposed to one that failed: the
// next one is tried.
type closedError struct{ reason string }

func (e *closedError) Error() string { return e.reason }

func closed(format string, args ...any) error {
	return &closedError{reason: fmt.Sprintf(format, args...)}
}

func allowed(way string) error {
	from := os.Getenv(EnvFrom)
	if from == "" || slices.Contains(strings.Split(from, ","), way) {
		return nil
	}
	return closed("left out by %s=%s", EnvFrom, from)
}

// firstOf tries the ways in their order. A closed one is noted and passed over;
// a failing one ends the search, lest a broken server is hidden by another.
func firstOf[T any](what string, ways ...way[T]) (T, error) {
	var none T
	unavailable := &UnavailableError{What: what}
	for _, w := range ways {
		err := allowed(w.name)
		if err == nil {
			var found T
			if found, err = w.start(); err == nil {
				return found, nil
			}
		}
		var shut *closedError
		if !errors.As(err, &shut) {
			return none, fmt.Errorf("start %s (%s): %w", what, w.name, err)
		}
		unavailable.add(w.name, err)
	}
	return none, unavailable
}

type way[T any] struct {
	name  string
	start func() (T, error)
}

func requireReal() bool {
	set, _ := strconv.ParseBool(os.Getenv(EnvRequireReal))
	return set
}

// SkipOrFail ends a test that got no server: it is skipped where none can be had,
// unless real ones are required.
func SkipOrFail(t testing.TB, err error) {
	t.Helper()
	var unavailable *UnavailableError
	if errors.As(err, &unavailable) && !requireReal() {
		t.Skipf("skipped: %v", err)
	}
	t.Fatalf("testenv: %v", err)
}
