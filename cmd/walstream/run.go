package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/walstream/walstream/internal/ops"
	"github.com/walstream/walstream/pkg/checkpoint"
	"github.com/walstream/walstream/pkg/outbox"
	"github.com/walstream/walstream/pkg/pipeline"
	"github.com/walstream/walstream/pkg/replication"
	"github.com/walstream/walstream/pkg/sink"
)

// stream runs the pipeline until it is stopped: SIGTERM or SIGINT drains it, a
// second one leaves at once. Nothing is lost either way.
func stream(ctx context.Context, c *Config, s streams) error {
	lines, terminal, bar := s.err, isTerminal(s.err), &snapshotBar{out: s.err}
	if c.wantsBar(terminal) {
		lines = bar
	}
	log := newLoggerOn(c, lines, terminal)
	// The level is the process's, so that it can be changed while it runs.
	zerolog.SetGlobalLevel(log.GetLevel())
	log = log.Level(zerolog.TraceLevel)
	cfg, err := c.pipelineConfig(log)
	if err != nil {
		return err
	}
	ctx, stop := onSignal(ctx, log)
	defer stop()
	if c.Sink == "stdout" {
		return classified(pipeline.Look(ctx, cfg, s.out))
	}
	var supervisor *pipeline.Supervisor
	progress := func() *pipeline.Progress { return supervisor.Progress() }
	watched := ops.Config{
		Listen: c.HTTPListen, Pipeline: c.Pipeline, Slot: c.Slot, Delivery: c.Delivery, Version: version,
		StallTimeout: c.StallTimeout, MaxInFlightBytes: cfg.Limits.Bytes, MaxRetainedWAL: int64(c.MaxRetainedWAL),
		Progress: progress, Redact: c.Redact, Access: c.access(), Pprof: c.Pprof, Log: log,
	}
	stopRetention, startRetention := c.retain(ctx, &watched, log)
	defer stopRetention()
	cfg.Kafka.Metrics = sink.NewClientMetrics()
	collectors := []prometheus.Collector{cfg.Kafka.Metrics}
	if exporter := c.traces(log); exporter != nil {
		defer exporter.Close()
		collectors = append(collectors, exporter)
		cfg.Kafka.OnCommit = func(commit *sink.Commit) { exporter.Span(c.span(commit)) }
	}
	metrics := ops.NewMetrics(watched, collectors...)
	cfg.Observe = metrics.Observe
	supervisor = pipeline.NewSupervisor(cfg)
	server, err := ops.Listen(watched, metrics)
	if err != nil {
		log.Error().Err(err).Int("exit_code", exitConfig).Msg("cannot start")
		return logged(withCode(exitConfig, err))
	}
	defer server.Close()
	defer watchHealth(ctx, watched, log)()
	defer tellManager(ctx, watched, log)()
	startRetention()
	if c.wantsBar(terminal) {
		defer bar.follow(progress)()
	}
	log.Info().Str("version", version).Str("pipeline", c.Pipeline).Str("slot", c.Slot).Str("http", server.Addr()).Msg("starting")
	if err = classified(supervisor.Run(ctx)); err != nil {
		message := "stopped: it needs a person"
		if exitCode(err) == exitUnacknowledged {
			message = "stopped before Kafka had acknowledged everything"
		}
		log.Error().Err(err).Int("exit_code", exitCode(err)).Msg(message)
		return logged(err)
	}
	logStopped(&log, progress())
	return nil
}

// logStopped says what was done in the life of the process: the rows are those taken
// from the stream, and the bad ones are among them, whatever is wrong with them.
func logStopped(log *zerolog.Logger, p *pipeline.Progress) {
	log.Info().Stringer("confirmed", p.Confirmed).Uint64("rows", p.Counters.Events).Uint64("bad_rows", p.Poisoned.Rows()).Msg("stopped")
}

// watchHealth logs when health turns. The returned function ends it.
func watchHealth(ctx context.Context, cfg ops.Config, log zerolog.Logger) func() {
	ctx, cancel := context.WithCancel(ctx)
	var done sync.WaitGroup
	done.Go(func() {
		ops.Watch(ctx, cfg, func(healthy bool, reason string, red time.Duration) {
			red = red.Round(time.Second)
			if healthy {
				log.Info().Stringer("red_for", red).Msg("health is green again")
			} else {
				log.Warn().Str("reason", reason).Stringer("red_for", red).Msg("health is red")
			}
		})
	})
	done.Go(func() {
		ops.WatchBudget(ctx, cfg, func(within bool, text string) {
			event := log.Warn()
			if within {
				event = log.Info()
			}
			event.Str("budget", text).Msg("WAL kept for the slot has passed a mark of --max-retained-wal")
		})
	})
	return func() {
		cancel()
		done.Wait()
	}
}

// tellManager informs systemd, if it asked. The returned function ends it.
func tellManager(ctx context.Context, cfg ops.Config, log zerolog.Logger) func() {
	warn := func(err error) { log.Warn().Err(err).Msg("the service manager cannot be told; going on without") }
	manager, found, err := ops.DialManager(os.Getenv)
	if err != nil {
		warn(err)
	}
	if !found {
		return func() {}
	}
	return manager.Tell(ctx, cfg, warn)
}

// onSignal ends the context at the first SIGTERM or SIGINT and the process at
// the second.
func onSignal(ctx context.Context, log zerolog.Logger) (context.Context, func()) {
	ctx, cancel := context.WithCancel(ctx)
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGTERM, os.Interrupt)
	go func() {
		if heedSignals(ctx, signals, cancel, log) {
			os.Exit(exitUnacknowledged)
		}
	}()
	return ctx, func() {
		signal.Stop(signals)
		cancel()
	}
}

// sameSignal is how long after a signal another one is the same: timeout(1) and
// shells send one to the process and one to its group.
const sameSignal = time.Second

// heedSignals calls stop at the first signal, and returns true at the second. It
// returns false when ctx ends before there was any.
func heedSignals(ctx context.Context, signals <-chan os.Signal, stop func(), log zerolog.Logger) bool {
	select {
	case sig := <-signals:
		log.Info().Stringer("signal", sig).Msg("stopping: finishing what is in flight; a second signal leaves at once")
	case <-ctx.Done():
		return false
	}
	first := time.Now()
	stop()
	for range signals {
		if time.Since(first) >= sameSignal {
			break
		}
	}
	log.Warn().Msg("left at once; what was not confirmed is sent again at the next start")
	return true
}

// newLogger writes JSON, or for people on a terminal. Every line passes through
// Redact: an error of a library may quote an address with its password.
func newLogger(c *Config, w io.Writer) zerolog.Logger { return newLoggerOn(c, w, isTerminal(w)) }

func newLoggerOn(c *Config, w io.Writer, terminal bool) zerolog.Logger {
	w = redactingWriter{c, w}
	if c.LogFormat == "console" || (c.LogFormat == "auto" && terminal) {
		w = zerolog.ConsoleWriter{Out: w, TimeFormat: "15:04:05.000", NoColor: !terminal}
	}
	level, err := zerolog.ParseLevel(c.LogLevel)
	if err != nil {
		panic("walstream: bug: log level passed validation: " + c.LogLevel)
	}
	zerolog.TimeFieldFormat = time.RFC3339Nano
	return zerolog.New(w).Level(level).With().Timestamp().Logger()
}

type redactingWriter struct {
	config *Config
	out    io.Writer
}

func (w redactingWriter) Write(p []byte) (int, error) {
	if _, err := io.WriteString(w.out, w.config.Redact(string(p))); err != nil {
		return 0, err
	}
	return len(p), nil
}

// pipelineConfig says the settings in the words of the packages.
func (c *Config) pipelineConfig(log zerolog.Logger) (pipeline.Config, error) {
	kafka, err := c.kafkaConfig(log)
	if err != nil {
		return pipeline.Config{}, err
	}
	return pipeline.Config{
		Pipeline: c.Pipeline, Slot: c.Slot, Publication: c.Publication, Version: version,
		Postgres: c.postgresOptions(), Kafka: kafka, Mapping: c.mappingConfigs(), SlotFailover: c.SlotFailover,
		Accept: checkpoint.Accept{
			AdoptSlot: c.AdoptSlot, GapFrom: c.AcceptGap.From, GapTo: c.AcceptGap.To,
			Server: c.AcceptServer, LostTail: c.AcceptLostTail, Rows: c.AcceptPublication,
		},
		Delivery: pipeline.Delivery(c.Delivery),
		Transactions: sink.TransactionalOptions{
			CommitInterval: c.CommitInterval, CommitMaxBytes: int(c.CommitMaxBytes), MaxTransactionTime: c.MaxTransactionTime,
		},
		Limits: c.limits(), StatusInterval: c.StatusInterval, ShutdownGrace: c.ShutdownGrace, Logger: log,
		Snapshot: pipeline.SnapshotMode(c.Snapshot), SnapshotWhere: c.SnapshotWhere,
		Rewind: pipeline.Rewind{Window: c.RewindWindow, MaxBytes: int64(c.RewindMax), Budget: int64(c.MaxRetainedWAL)},
	}, nil
}

func (c *Config) postgresOptions() replication.Options {
	return replication.Options{Postgres: c.Postgres, ApplicationName: c.Pipeline, Password: c.postgresPassword, FromStandby: c.FromStandby}
}

// postgresPassword is what to connect by: that of the file, or what address,
// variables or password file have.
func (c *Config) postgresPassword(found string) (string, error) {
	if c.PostgresPasswordFile == "" {
		c.keepSecret(found, "postgres")
		return found, nil
	}
	return c.password("postgres-password-file", "", c.PostgresPasswordFile)()
}

// limits: bytes are the user's; events bound what small rows cost beside them.
func (c *Config) limits() checkpoint.Limits {
	const perEvent = 256 // bytes of structures for an event in flight
	return checkpoint.Limits{Bytes: int(min(int64(c.MaxInFlightBytes), math.MaxInt)), Events: int(min(int64(c.MaxInFlightBytes)/perEvent, math.MaxInt32))}
}

func (c *Config) kafkaConfig(log zerolog.Logger) (sink.Config, error) {
	schemas, err := c.registry()
	if err != nil {
		return sink.Config{}, withCode(exitConfig, err)
	}
	return sink.Config{
		Registry: schemas,
		Brokers:  c.KafkaBrokers, ClientID: "walstream." + c.Pipeline, TLS: c.kafkaTLS(),
		SASLMechanism: c.saslMechanism(), SASLUser: c.principal(), Credentials: c.credentials(),
		Pipeline: c.Pipeline, Compression: c.KafkaCompression, MaxInFlight: c.limits(),
		CreateTopics: c.CreateTopics, TopicPartitions: brokerDefault[int32](c.TopicPartitions),
		TopicReplicationFactor: brokerDefault[int16](c.TopicReplicationFactor), TopicConfigs: c.topicConfigs(),
		TopicsAllowed: c.TopicsAllowed, OnPoison: sink.Policy(c.OnPoison), PoisonLimit: c.PoisonLimit,
		HistoryRetention: c.HistoryRetention,
		Version:          version, Logger: log,
	}, nil
}

// topicConfigs are those of created topics. A word without = goes on with the
// value before it.
func (c *Config) topicConfigs() map[string]string {
	configs, last := map[string]string{}, ""
	for _, word := range c.TopicConfig {
		if key, value, ok := strings.Cut(word, "="); ok {
			last = strings.TrimSpace(key)
			configs[last] = strings.TrimSpace(value)
		} else {
			configs[last] += "," + word
		}
	}
	return configs
}

// brokerDefault turns the setting's 0 into Kafka's -1.
func brokerDefault[T int16 | int32](n int) T {
	if n == 0 {
		return -1
	}
	return T(n)
}

func (c *Config) mappingConfigs() []outbox.MappingConfig {
	configs := make([]outbox.MappingConfig, 0, 1)
	for _, t := range c.Tables() {
		configs = append(configs, t.mapping(c.Pipeline))
	}
	return configs
}

// classified gives an error that ended the pipeline the exit code of its kind.
func classified(err error) error {
	if err == nil {
		return nil
	}
	if refusal, ok := errors.AsType[*checkpoint.Refusal](err); ok {
		if refusal.Kind == checkpoint.RefuseSlotLost || refusal.Kind == checkpoint.RefuseNoSlot {
			return withCode(exitSlotLost, err)
		}
		return withCode(exitGap, err)
	}
	if code, ok := exitCodes[pipeline.Classify(err).Reason]; ok {
		return withCode(code, err)
	}
	return withCode(exitBug, fmt.Errorf("unexpected: %w", err))
}

// exitCodes of what pipeline.Classify stops on.
var exitCodes = map[string]int{
	"other-history":         exitGap,
	"checkpoint-format":     exitGap,
	"checkpoint-unreadable": exitGap,
	"publication-changed":   exitGap,
	"publication-missing":   exitGap,
	"replay":                exitPreflight,
	"slot-lost":             exitSlotLost,
	"wal-removed":           exitSlotLost,
	"synchronous-standby":   exitPreflight,
	"preflight":             exitPreflight,
	"slot-unusable":         exitPreflight,
	"paused-by-operator":    exitPreflight,
	"mapping":               exitPreflight,
	"snapshot":              exitPreflight,
	"rights":                exitRights,
	"kafka-setup":           exitPreflight,
	"undecodable":           exitBug,
	"bad-row":               exitRefusedRecord,
	"encoding":              exitRefusedRecord,
	"refused-record":        exitRefusedRecord,
	"access":                exitRights,
	"authentication":        exitRights,
	"no-database":           exitPreflight,
	"postgres-tls":          exitPreflight,
	"pooler":                exitPreflight,
	"postgres-address":      exitConfig,
	"unacknowledged":        exitUnacknowledged,
}
