package main

import (
	"strings"

	"github.com/rs/zerolog"

	"github.com/walstream/walstream/internal/otlp"
	"github.com/walstream/walstream/pkg/sink"
)

// readTraceVariables keeps OpenTelemetry's own variables. They are no settings of
// ours: whoever runs a collector has set them for all processes, or has their
// platform do it.
func (c *Config) readTraceVariables(environ []string) {
	c.otel = map[string]string{}
	for _, entry := range environ {
		if variable, text, _ := strings.Cut(entry, "="); strings.HasPrefix(variable, "OTEL_") {
			c.otel[variable] = text
		}
	}
	for _, variable := range []string{"OTEL_EXPORTER_OTLP_HEADERS", "OTEL_EXPORTER_OTLP_TRACES_HEADERS"} {
		headers, _ := otlp.Headers(c.otel[variable]) // a fault is told when traces are wanted
		for _, value := range headers {
			_, credential, ok := strings.Cut(value, " ") // Bearer, Basic
			if !ok {
				credential = value
			}
			c.keepSecret(credential)
		}
	}
}

// traces starts to send a span for each Kafka commit, where the variables ask for
// it; nil: they do not.
func (c *Config) traces(log zerolog.Logger) *otlp.Exporter {
	cfg, on, err := otlp.FromVariables(func(variable string) string { return c.otel[variable] }, version)
	if err != nil {
		log.Warn().Err(err).Msg("traces are off")
	}
	if !on {
		return nil
	}
	log.Info().Str("url", c.Redact(mask("url", cfg.URL))).Float64("ratio", cfg.Ratio).Msg("tracing: a span for each Kafka commit with rows")
	return otlp.New(cfg, version, log, c.Redact)
}

// span of a commit, by the words of OpenTelemetry where it has them.
func (c *Config) span(commit *sink.Commit) otlp.Span {
	s := otlp.Span{
		Name: "commit " + c.Pipeline, Start: commit.Began, End: commit.Ended, MoreLinks: commit.MoreTraces,
		Attributes: []otlp.Attribute{
			{Key: "messaging.system", Value: "kafka"},
			{Key: "messaging.operation.type", Value: "send"},
			{Key: "messaging.operation.name", Value: "commit"},
			{Key: "messaging.batch.message_count", Value: commit.Rows},
			{Key: "messaging.client.id", Value: "walstream." + c.Pipeline},
			{Key: "walstream.pipeline", Value: c.Pipeline},
			{Key: "walstream.slot", Value: c.Slot},
			{Key: "walstream.delivery", Value: c.Delivery},
			{Key: "walstream.rows", Value: commit.Rows},
			{Key: "walstream.bytes", Value: commit.Bytes},
			{Key: "walstream.snapshot", Value: commit.Snapshot},
			{Key: "walstream.lane", Value: commit.Lane},
			{Key: "walstream.split", Value: commit.Split},
		},
	}
	if !commit.Snapshot {
		s.Attributes = append(s.Attributes, otlp.Attribute{Key: "walstream.commit_lsn.first", Value: commit.First.String()},
			otlp.Attribute{Key: "walstream.commit_lsn.last", Value: commit.Last.String()})
	}
	switch {
	case commit.Err != nil:
		s.Err = commit.Err.Error()
	case !commit.Snapshot:
		s.Attributes = append(s.Attributes, otlp.Attribute{Key: "walstream.covered_lsn", Value: commit.Covered.String()})
	}
	for _, trace := range commit.Traces {
		s.Links = append(s.Links, otlp.Link(trace))
	}
	return s
}
