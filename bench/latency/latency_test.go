package main

import (
	"testing"
	"time"

	"github.com/walstream/walstream/internal/service"
	"github.com/walstream/walstream/internal/testenv"
)

// The whole run, small: it keeps the tool working, and says nothing about time.
func TestLatency(t *testing.T) {
	if testing.Short() {
		t.Skip("skipped: -short")
	}
	pg := testenv.NewPostgres(t, postgresOptions)
	kafka := testenv.NewKafka(t, kafkaOptions)
	binary, err := service.Build(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	found, err := run(t.Context(), options{rates: []int{50}, warmUp: time.Second, took: 2 * time.Second, binary: binary, say: t.Logf}, pg, kafka)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"at_least_once_50", "exactly_once_50"} {
		if f := found[name]; f.N != 100 || f.P50 <= 0 || f.P99 < f.P50 || f.Max < f.P99 {
			t.Errorf("%s: %+v", name, f)
		}
	}
}

func TestConclude(t *testing.T) {
	var taken []time.Duration
	for i := 200; i > 0; i-- {
		taken = append(taken, time.Duration(i)*time.Millisecond)
	}
	if got, want := conclude(taken), (figures{P50: 100, P99: 198, Max: 200, N: 200}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestParse(t *testing.T) {
	number, at, err := parse([]byte("1700000000000001 42 payload with spaces"))
	if err != nil || number != 42 || at.UnixMicro() != 1700000000000001 {
		t.Errorf("got %d, %s, %v", number, at, err)
	}
	for _, value := range []string{"", "1 2", "x 1 y", "1 x y"} {
		if _, _, err := parse([]byte(value)); err == nil {
			t.Errorf("%q was read", value)
		}
	}
}
