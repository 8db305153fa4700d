package main

import (
	"strings"
	"time"

	"github.com/jackc/pglogrepl"
)

// Config is everything that can be set, and its tags are the one table of
// settings: name is the flag, the file's key and, as WALSTREAM_<NAME>, the
// variable. range and values bound a setting, secret masks it wherever it is
// shown. The values are plain data, complete and checked once Load returned
// them.
type Config struct {
	Slot        string `name:"slot" common:"yes" group:"PostgreSQL" placeholder:"NAME" help:"replication slot; the only setting that is required"`
	Pipeline    string `name:"pipeline" group:"PostgreSQL" placeholder:"NAME" help:"names the checkpoint; empty: <database>.<slot>"`
	Postgres    string `name:"postgres" common:"yes" group:"PostgreSQL" secret:"postgres" placeholder:"URL" help:"URL or DSN; empty: PG* variables and libpq's defaults"`
	Publication string `name:"publication" group:"PostgreSQL" placeholder:"NAME" help:"empty: the slot's name without _slot, and _pub"`

	// Outbox is the one table of flags and variables. Tables() is what counts.
	Outbox Outbox `embed:""`
	// Outboxes can be given in the file only, instead of the settings of Outbox.
	Outboxes []Outbox `kong:"-"`

	Sink     string `name:"sink" common:"yes" group:"Kafka" default:"kafka" values:"kafka,stdout" help:"stdout is for looking: nothing is confirmed"`
	Delivery string `name:"delivery" group:"Kafka" default:"exactly-once" values:"exactly-once,at-least-once" help:"exactly-once: whole transactions, each row once for read_committed consumers"`

	KafkaBrokers []string `name:"kafka-brokers" common:"yes" group:"Kafka" default:"localhost:9092" placeholder:"HOST:PORT,..." help:"brokers to begin with"`
	// Uncompressed is what measured best on one machine: lz4 halves the rate and
	// costs 2.5 times the CPU, zstd more. Where the network is the limit, lz4.
	KafkaCompression string `name:"kafka-compression" group:"Kafka" default:"none" values:"none,gzip,snappy,lz4,zstd" help:"none costs the least CPU, lz4 spares the network"`

	KafkaTLS     bool   `name:"kafka-tls" group:"Kafka security" default:"false" help:"connect by TLS"`
	KafkaTLSCA   string `name:"kafka-tls-ca" group:"Kafka security" placeholder:"FILE" help:"PEM file of authorities; empty: the system's"`
	KafkaTLSCert string `name:"kafka-tls-cert" group:"Kafka security" placeholder:"FILE" help:"PEM file of the client's certificate"`
	KafkaTLSKey  string `name:"kafka-tls-key" group:"Kafka security" placeholder:"FILE" help:"PEM file of the client's key"`

	KafkaSASLMechanism    string `name:"kafka-sasl-mechanism" group:"Kafka security" values:",plain,scram-sha-256,scram-sha-512" help:"plain, scram-sha-256 or scram-sha-512; empty: no SASL"`
	KafkaSASLUser         string `name:"kafka-sasl-user" group:"Kafka security" placeholder:"NAME" help:"user"`
	KafkaSASLPassword     string `name:"kafka-sasl-password" group:"Kafka security" secret:"yes" placeholder:"SECRET" help:"password; others see a flag: prefer the variable or a file"`
	KafkaSASLPasswordFile string `name:"kafka-sasl-password-file" group:"Kafka security" placeholder:"FILE" help:"file that holds the password"`

	CreateTopics bool `name:"create-topics" common:"yes" group:"Topics" default:"false" help:"create topics that are missing"`
	// 0 leaves the choice to the broker; its own limit is far below 10,000.
	TopicPartitions        int `name:"topic-partitions" group:"Topics" default:"0" range:"0..10000" help:"of created topics; 0: the broker's default"`
	TopicReplicationFactor int `name:"topic-replication-factor" group:"Topics" default:"0" range:"0..100" help:"of created topics; 0: the broker's default"`

	HTTPListen string `name:"http-listen" common:"yes" group:"Operation" default:"127.0.0.1:9475" placeholder:"HOST:PORT" help:"metrics, probes and /status"`
	// Never above a third of the 15 s wal_sender_timeout walstream sets on its
	// own session, so that two lost status updates do not end it.
	StatusInterval time.Duration `name:"status-interval" group:"Operation" default:"5s" range:"10ms..5s" help:"pause between status updates to PostgreSQL"`
	StallTimeout   time.Duration `name:"stall-timeout" group:"Operation" default:"60s" range:"1s..1h" help:"health turns red when work waits this long"`
	// Kubernetes kills after 30 s; 20 s leave time for the last status.
	ShutdownGrace time.Duration `name:"shutdown-grace" group:"Operation" default:"20s" range:"0s..1h" help:"how long SIGTERM waits for what is in flight"`
	// About 200 ms of 150,000 rows/s of 1 KB: enough to keep the brokers busy.
	MaxInFlightBytes Size `name:"max-in-flight-bytes" group:"Operation" default:"32MiB" range:"64KiB..16GiB" help:"bound of rows sent and not yet acknowledged"`
	// A commit costs the broker milliseconds of CPU; below 5 ms nobody gains.
	CommitInterval time.Duration `name:"commit-interval" group:"Operation" default:"5ms" range:"0s..1s" help:"exactly-once: pause between Kafka commits while more waits"`
	// A tenth of a second of a fast stream: more only delays what is in it.
	CommitMaxBytes Size `name:"commit-max-bytes" group:"Operation" default:"16MiB" range:"1KiB..1GiB" help:"exactly-once: how much one Kafka commit joins"`
	// The broker aborts a transaction at 30 s; what is under way needs time too.
	MaxTransactionTime time.Duration `name:"max-transaction-time" group:"Operation" default:"10s" range:"100ms..20s" help:"exactly-once: a larger transaction is split after this"`
	OnPoison           string        `name:"on-poison" group:"Operation" default:"stop" values:"stop" later:"dead-letter,skip" help:"a row Kafka refuses stops the stream"`
	Snapshot           string        `name:"snapshot" group:"Operation" default:"never" values:"never" later:"initial,only" help:"rows from before the slot are not published"`
	LogLevel           string        `name:"log-level" common:"yes" group:"Operation" default:"info" values:"debug,info,warn,error" help:"debug, info, warn or error"`
	LogFormat          string        `name:"log-format" group:"Operation" default:"auto" values:"auto,json,console" help:"auto is console on a terminal, json elsewhere"`

	AdoptSlot         pglogrepl.LSN `name:"adopt-slot" group:"Answers to a refusal" placeholder:"LSN" help:"take over a slot without a checkpoint"`
	AcceptGap         LSNRange      `name:"accept-gap" group:"Answers to a refusal" placeholder:"LSN..LSN" help:"go on behind rows never published"`
	AcceptServer      string        `name:"accept-server" group:"Answers to a refusal" placeholder:"ID" help:"go on with another system identifier"`
	AcceptLostTail    pglogrepl.LSN `name:"accept-lost-tail" group:"Answers to a refusal" placeholder:"LSN" help:"go on after a failover that lost published rows"`
	AcceptPublication string        `name:"accept-publication" group:"Answers to a refusal" placeholder:"FINGERPRINT" help:"go on after the publication was changed"`

	report     *report  // where each value came from; set by load
	connection string   // what an empty postgres comes to
	secrets    []string // what must never be shown; see Redact
}

// Outbox is one table and how its rows become records. An empty column setting
// means the preset's, or that of our own table without a preset.
type Outbox struct {
	Table           Table    `name:"table" common:"yes" group:"Outbox" default:"public.outbox" placeholder:"SCHEMA.NAME" help:"outbox table"`
	Preset          string   `name:"preset" common:"yes" group:"Outbox" values:",bank" later:"relay,events,debezium" help:"known table shape: bank; empty: our own table's"`
	Topic           string   `name:"topic" group:"Outbox" placeholder:"NAME" help:"one topic for all rows"`
	TopicColumn     string   `name:"topic-column" group:"Outbox" placeholder:"COLUMN" help:"topic of each row"`
	TopicPattern    string   `name:"topic-pattern" group:"Outbox" placeholder:"TEXT" help:"topic from columns, e.g. outbox.event.{aggregate_type}"`
	KeyColumn       string   `name:"key-column" group:"Outbox" placeholder:"COLUMN" help:"record key"`
	ValueColumn     string   `name:"value-column" group:"Outbox" placeholder:"COLUMN" help:"record value, byte for byte"`
	HeadersColumn   string   `name:"headers-column" group:"Outbox" placeholder:"COLUMN" help:"one jsonb column spread out into headers"`
	HeaderColumns   []string `name:"header-columns" group:"Outbox" placeholder:"COLUMN,..." help:"columns that become a header each; HEADER=COLUMN renames"`
	PartitionColumn string   `name:"partition-column" group:"Outbox" placeholder:"COLUMN" help:"partition number; empty: by key"`
	TimestampColumn string   `name:"timestamp-column" group:"Outbox" placeholder:"COLUMN" help:"record timestamp; empty: commit time"`
	IDColumn        string   `name:"id-column" group:"Outbox" placeholder:"COLUMN" help:"event id, for deduplication and for messages"`
}

// Tables returns the outbox tables to stream: those of the file's list, or the
// single one of the settings.
func (c *Config) Tables() []Outbox {
	if len(c.Outboxes) > 0 {
		return c.Outboxes
	}
	return []Outbox{c.Outbox}
}

// derive fills what is named after other settings.
func (c *Config) derive(database string) {
	if c.Pipeline == "" && c.Slot != "" && database != "" {
		c.Pipeline = database + "." + c.Slot
		c.report.origins["pipeline"] = "derived: <database>.<slot>"
	}
	if c.Publication == "" && c.Slot != "" {
		c.Publication = strings.TrimSuffix(c.Slot, "_slot") + "_pub"
		c.report.origins["publication"] = "derived from slot"
	}
}
