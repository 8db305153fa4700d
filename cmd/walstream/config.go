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
	Slot                 string `name:"slot" common:"yes" group:"PostgreSQL" placeholder:"NAME" help:"replication slot; the only setting that is required"`
	Pipeline             string `name:"pipeline" group:"PostgreSQL" placeholder:"NAME" help:"names the checkpoint; empty: <database>.<slot>"`
	Postgres             string `name:"postgres" common:"yes" group:"PostgreSQL" secret:"postgres" placeholder:"URL" help:"URL or DSN; empty: PG* variables and libpq's defaults"`
	PostgresPasswordFile string `name:"postgres-password-file" group:"PostgreSQL" placeholder:"FILE" help:"file that holds the password; read at each connect"`
	Publication          string `name:"publication" group:"PostgreSQL" placeholder:"NAME" help:"empty: the slot's name without _slot, and _pub"`
	SlotFailover         bool   `name:"slot-failover" group:"PostgreSQL" default:"false" help:"PostgreSQL 17 and newer: a failover slot, which standby servers copy"`
	FromStandby          bool   `name:"from-standby" group:"PostgreSQL" default:"false" help:"PostgreSQL 16 and newer: stream from a server in recovery; the publication is made on its primary"`

	// Outbox is the one table of flags and variables. Tables() is what counts.
	Outbox Outbox `embed:""`
	// Outboxes can be given in the file only, instead of the settings of Outbox.
	Outboxes []Outbox `kong:"-"`

	Sink     string `name:"sink" group:"Kafka" default:"kafka" values:"kafka,stdout" help:"stdout is for looking: nothing is confirmed"`
	Delivery string `name:"delivery" group:"Kafka" default:"exactly-once" values:"exactly-once,at-least-once" help:"exactly-once (whole transactions, each row once for read_committed consumers) or at-least-once"`

	KafkaBrokers []string `name:"kafka-brokers" common:"yes" group:"Kafka" default:"localhost:9092" placeholder:"HOST:PORT,..." help:"brokers to begin with"`
	// Uncompressed is what measured best on one machine: lz4 halves the rate and
	// costs 2.5 times the CPU, zstd more. Where the network is the limit, lz4.
	KafkaCompression string `name:"kafka-compression" group:"Kafka" default:"none" values:"none,gzip,snappy,lz4,zstd" help:"none costs the least CPU, lz4 spares the network"`

	KafkaTLS     bool   `name:"kafka-tls" group:"Kafka security" default:"false" help:"connect by TLS"`
	KafkaTLSCA   string `name:"kafka-tls-ca" group:"Kafka security" placeholder:"FILE" help:"PEM file of authorities; empty: the system's"`
	KafkaTLSCert string `name:"kafka-tls-cert" group:"Kafka security" placeholder:"FILE" help:"PEM file of the client's certificate"`
	KafkaTLSKey  string `name:"kafka-tls-key" group:"Kafka security" placeholder:"FILE" help:"PEM file of the client's key"`

	KafkaSASLMechanism    string `name:"kafka-sasl-mechanism" group:"Kafka security" values:",plain,scram-sha-256,scram-sha-512,oauthbearer,aws-msk-iam" help:"plain, scram-sha-256, scram-sha-512, oauthbearer or aws-msk-iam; empty: no SASL"`
	KafkaSASLUser         string `name:"kafka-sasl-user" group:"Kafka security" placeholder:"NAME" help:"user; with kafka-sasl-token-url the client's id"`
	KafkaSASLPassword     string `name:"kafka-sasl-password" group:"Kafka security" secret:"yes" placeholder:"SECRET" help:"password; others see a flag: prefer the variable or a file"`
	KafkaSASLPasswordFile string `name:"kafka-sasl-password-file" group:"Kafka security" placeholder:"FILE" help:"file that holds the password; read at each login"`
	KafkaSASLTokenFile    string `name:"kafka-sasl-token-file" group:"Kafka security" placeholder:"FILE" help:"oauthbearer: file that holds the token; read at each login"`
	KafkaSASLTokenURL     string `name:"kafka-sasl-token-url" group:"Kafka security" secret:"url" placeholder:"URL" help:"oauthbearer: endpoint that gives tokens for user and password (client credentials)"`
	KafkaSASLScope        string `name:"kafka-sasl-scope" group:"Kafka security" placeholder:"TEXT" help:"oauthbearer: scope to ask the endpoint for"`

	RegistryURL          []string `name:"registry-url" secret:"url" group:"Schema registry" placeholder:"URL,..." help:"of the schema registry, a Confluent-style API"`
	RegistryUser         string   `name:"registry-user" group:"Schema registry" placeholder:"NAME" help:"user of basic authentication"`
	RegistryPassword     string   `name:"registry-password" group:"Schema registry" secret:"yes" placeholder:"SECRET" help:"its password; others see a flag: prefer the variable or a file"`
	RegistryPasswordFile string   `name:"registry-password-file" group:"Schema registry" placeholder:"FILE" help:"file that holds the password, or without a user a bearer token"`
	RegistryTLSCA        string   `name:"registry-tls-ca" group:"Schema registry" placeholder:"FILE" help:"PEM file of authorities; empty: the system's"`
	RegistryTLSCert      string   `name:"registry-tls-cert" group:"Schema registry" placeholder:"FILE" help:"PEM file of the client's certificate"`
	RegistryTLSKey       string   `name:"registry-tls-key" group:"Schema registry" placeholder:"FILE" help:"PEM file of the client's key"`

	CreateTopics bool `name:"create-topics" group:"Topics" default:"false" help:"create topics that are missing"`
	// 0 leaves the choice to the broker; its own limit is far below 10,000.
	TopicPartitions        int `name:"topic-partitions" group:"Topics" default:"0" range:"0..10000" help:"of created topics; 0: the broker's default"`
	TopicReplicationFactor int `name:"topic-replication-factor" group:"Topics" default:"0" range:"0..100" help:"of created topics; 0: the broker's default"`
	// The list of a value that holds commas, as cleanup.policy may, goes on in the next word.
	TopicConfig   []string `name:"topic-config" group:"Topics" placeholder:"KEY=VALUE,..." help:"settings of created topics, e.g. retention.ms=604800000"`
	TopicsAllowed []string `name:"topics-allowed" group:"Topics" placeholder:"PATTERN,..." help:"topics rows may go to, with * and ?; empty: all but internal ones"`

	// A month: longer than most topics keep what was published.
	HistoryRetention time.Duration `name:"history-retention" group:"Topics" default:"30d" range:"0s..87600h" help:"how long walstream.history.<pipeline> says which rows were published when, for replay; 0s: keep no history"`

	HTTPListen    string `name:"http-listen" group:"Operation" default:"127.0.0.1:9475" placeholder:"HOST:PORT" help:"metrics, probes and /status"`
	HTTPTokenFile string `name:"http-token-file" group:"Operation" placeholder:"FILE" help:"file of the bearer token that /status, /metrics and the page want; probes stay open"`
	HTTPTLSCert   string `name:"http-tls-cert" group:"Operation" placeholder:"FILE" help:"PEM file of the HTTP server's certificate: it then speaks TLS only"`
	HTTPTLSKey    string `name:"http-tls-key" group:"Operation" placeholder:"FILE" help:"PEM file of its key"`
	HTTPTLSCA     string `name:"http-tls-ca" group:"Operation" placeholder:"FILE" help:"PEM file of authorities: a client's certificate of theirs does for the token"`
	// Never above a third of the 15 s wal_sender_timeout walstream sets on its
	// own session, so that two lost status updates do not end it.
	StatusInterval time.Duration `name:"status-interval" group:"Operation" default:"5s" range:"10ms..5s" help:"pause between status updates to PostgreSQL"`
	StallTimeout   time.Duration `name:"stall-timeout" group:"Operation" default:"60s" range:"1s..1h" help:"health turns red when work waits this long"`
	// Kubernetes kills after 30 s; 20 s leave time for the last status.
	ShutdownGrace time.Duration `name:"shutdown-grace" group:"Operation" default:"20s" range:"0s..1h" help:"how long SIGTERM waits for what is in flight"`
	// About 200 ms of 150,000 rows/s of 1 KB: enough to keep the brokers busy.
	MaxInFlightBytes Size `name:"max-in-flight-bytes" group:"Operation" default:"32MiB" range:"64KiB..16GiB" help:"bound of rows sent and not yet acknowledged"`
	// Off: what a server can hold is known to whoever sized its disk, and red
	// health by a guess would be switched off. max_slot_wal_keep_size has its own
	// alerts without it.
	MaxRetainedWAL Size `name:"max-retained-wal" group:"Operation" default:"0B" range:"0B..1PiB" help:"health turns red when the server keeps more WAL for the slot; warns from half of it on; 0B: off"`
	// Off: its price is WAL kept, and a catalogue that vacuum does not clean, for the
	// whole window.
	RewindWindow time.Duration `name:"rewind-window" group:"Operation" default:"0s" range:"0s..8760h" help:"keep a second slot, <slot>_rewind, so far behind, to replay from; 0s: none, and one that is there is dropped"`
	// What a server with a disk of some hundred GB can spare.
	RewindMax Size `name:"rewind-max" group:"Operation" default:"10GiB" range:"0B..1PiB" help:"how much WAL the rewind slot may keep before it is moved on, or given up; 0B: bounded by the server's limits only"`
	// A commit costs the broker milliseconds of CPU; below 5 ms nobody gains.
	CommitInterval time.Duration `name:"commit-interval" group:"Operation" default:"5ms" range:"0s..1s" help:"exactly-once: pause between Kafka commits while more waits"`
	// A tenth of a second of a fast stream: more only delays what is in it.
	CommitMaxBytes Size `name:"commit-max-bytes" group:"Operation" default:"16MiB" range:"1KiB..1GiB" help:"exactly-once: how much one Kafka commit joins"`
	// The broker aborts a transaction at 30 s; what is under way needs time too.
	MaxTransactionTime time.Duration `name:"max-transaction-time" group:"Operation" default:"10s" range:"100ms..20s" help:"exactly-once: a transaction that takes longer to publish is split, 100ms to 20s"`
	OnPoison           string        `name:"on-poison" group:"Operation" default:"stop" values:"stop,dead-letter,skip" help:"a row that cannot be published stops the stream, or is kept in walstream.dead-letters.<pipeline>, or left out"`
	// So many in a row are no accident of single rows, and few enough to be looked through and retried.
	PoisonLimit   int    `name:"poison-limit" group:"Operation" default:"1000" range:"0..10000" help:"dead-letter and skip: stop when so many rows in a row, of a topic or of all, were bad; 0: never"`
	Snapshot      string `name:"snapshot" group:"Operation" default:"never" values:"never,initial,only" help:"rows from before the slot: not published, or before the stream at the first start (initial), or that alone (only)"`
	SnapshotWhere string `name:"snapshot-where" group:"Operation" placeholder:"SQL" help:"condition on the rows of a snapshot, e.g. published_at IS NULL"`
	LogLevel      string `name:"log-level" group:"Operation" default:"info" values:"debug,info,warn,error" help:"debug, info, warn or error"`
	LogFormat     string `name:"log-format" group:"Operation" default:"auto" values:"auto,json,console" help:"auto is console on a terminal, json elsewhere"`
	Pprof         bool   `name:"pprof" group:"Operation" default:"false" help:"serve the profiles of the Go runtime under /debug/pprof/"`

	// Half a thousandth of a week: nobody's table is noticeably larger for it.
	Retention         time.Duration `name:"retention" group:"Retention" default:"0s" range:"0s..87600h" help:"delete rows that are published and were made longer ago, e.g. 7d; 0s: keep them"`
	RetentionColumn   string        `name:"retention-column" group:"Retention" placeholder:"COLUMN" help:"when a row was made; empty: timestamp-column, else created_at"`
	RetentionInterval time.Duration `name:"retention-interval" group:"Retention" default:"5m" range:"1s..24h" help:"pause between two passes through the table, of retention and stamp"`
	DropPartitions    bool          `name:"drop-partitions" group:"Retention" default:"false" help:"retention and prune: drop range partitions in place of their rows"`
	Stamp             string        `name:"stamp" group:"Retention" placeholder:"COLUMN" help:"set this column, where it is NULL, when the row is published, e.g. published_at"`

	AdoptSlot         pglogrepl.LSN `name:"adopt-slot" group:"Answers to a refusal" placeholder:"LSN" help:"take over a slot without a checkpoint"`
	AcceptGap         LSNRange      `name:"accept-gap" group:"Answers to a refusal" placeholder:"LSN..LSN" help:"go on behind rows never published"`
	AcceptServer      string        `name:"accept-server" group:"Answers to a refusal" placeholder:"ID" help:"go on with another system identifier"`
	AcceptLostTail    pglogrepl.LSN `name:"accept-lost-tail" group:"Answers to a refusal" placeholder:"LSN" help:"go on after a failover that lost published rows"`
	AcceptPublication string        `name:"accept-publication" group:"Answers to a refusal" placeholder:"FINGERPRINT" help:"go on after the publication was changed"`

	report     *report           // where each value came from; set by load
	connection string            // what an empty postgres comes to
	otel       map[string]string // OpenTelemetry's variables
	vault      vault             // what must never be shown; see Redact
}

// Outbox is one table and how its rows become records. An empty column setting
// means the preset's, or that of our own table without a preset.
type Outbox struct {
	Table           Table    `name:"table" common:"yes" group:"Outbox" default:"public.outbox" placeholder:"SCHEMA.NAME" help:"outbox table"`
	Preset          string   `name:"preset" group:"Outbox" values:",bank,relay,events,debezium" help:"bank, relay, events or debezium; empty: our own table's"`
	Topic           string   `name:"topic" group:"Outbox" placeholder:"NAME" help:"one topic for all rows"`
	TopicColumn     string   `name:"topic-column" group:"Outbox" placeholder:"COLUMN" help:"topic of each row"`
	TopicPattern    string   `name:"topic-pattern" group:"Outbox" placeholder:"TEXT" help:"topic from columns, e.g. outbox.event.{aggregate_type}"`
	RouteColumn     string   `name:"route-column" group:"Outbox" placeholder:"COLUMN" help:"topic from this column by a regular expression"`
	RouteRegex      string   `name:"route-regex" group:"Outbox" placeholder:"REGEX" help:"what it must match as a whole; empty: (?<routedByValue>.*)"`
	RouteReplace    string   `name:"route-replacement" group:"Outbox" placeholder:"TEXT" help:"the topic, with $1 or $${name}; empty: outbox.event.$${routedByValue}"`
	KeyColumn       string   `name:"key-column" group:"Outbox" placeholder:"COLUMN" help:"record key"`
	Key             string   `name:"key" group:"Outbox" placeholder:"TEXT" help:"one key for rows whose key column is NULL or not named"`
	KeyFormat       string   `name:"key-format" group:"Outbox" values:",text,json" help:"json quotes the key column as Connect's JsonConverter does; empty: text, its bytes"`
	ValueColumn     string   `name:"value-column" group:"Outbox" placeholder:"COLUMN" help:"record value, byte for byte"`
	ValueFormat     string   `name:"value-format" group:"Outbox" values:",text,json" help:"json quotes the value column as Connect's JsonConverter does; empty: text, its bytes"`
	Tombstone       string   `name:"tombstone" group:"Outbox" values:",on-null,on-empty,on-blank,never" help:"a NULL value is a tombstone (on-null), an empty one too (on-empty; on-blank: but no bytea), or refused (never); empty: on-null"`
	HeadersColumn   string   `name:"headers-column" group:"Outbox" placeholder:"COLUMN" help:"one column spread out into headers: json, jsonb, hstore or text[] of pairs"`
	HeaderColumns   []string `name:"header-columns" group:"Outbox" placeholder:"COLUMN,..." unset:"the preset's" help:"columns that become a header each; HEADER=COLUMN renames; an empty list: none, not the preset's either"`
	HeaderFormat    string   `name:"header-format" group:"Outbox" values:",text,json" help:"json quotes header columns as Connect's JsonConverter does; empty: text, their bytes"`
	HeaderConstants []string `name:"header-constants" group:"Outbox" placeholder:"HEADER=TEXT,..." help:"headers that are the same for all rows"`
	TraceColumn     string   `name:"trace-column" group:"Outbox" placeholder:"COLUMN" help:"a traceparent, or the properties of a trace context; a column traceparent is found without"`
	EnvelopeColumns []string `name:"envelope-columns" group:"Outbox" placeholder:"COLUMN,..." help:"make the value an object of payload and these; FIELD=COLUMN renames"`
	EnvelopePayload string   `name:"envelope-payload" group:"Outbox" values:",auto,json,string" help:"in the envelope json and jsonb stand as JSON (auto), text that is JSON too (json), none (string); empty: auto"`
	Envelope        string   `name:"envelope" group:"Outbox" values:",none,cloudevents-binary,cloudevents-structured" help:"CloudEvents 1.0: attributes in headers (binary) or all in the value (structured); empty: none"`
	CESource        string   `name:"ce-source" group:"Outbox" placeholder:"TEXT" help:"CloudEvents: source, with {column}; empty: /walstream/<pipeline>"`
	CEType          string   `name:"ce-type" group:"Outbox" placeholder:"TEXT" help:"CloudEvents: type, with {column}; empty: the preset's column"`
	CESubject       string   `name:"ce-subject" group:"Outbox" placeholder:"TEXT" help:"CloudEvents: subject, with {column}; empty: none"`
	CEContentType   string   `name:"ce-datacontenttype" group:"Outbox" placeholder:"TEXT" help:"CloudEvents: media type, with {column}; empty: by the value column's type"`
	CEDataSchema    string   `name:"ce-dataschema" group:"Outbox" placeholder:"URI" help:"CloudEvents: URI of the data's schema, with {column}; empty: none"`
	CEExtensions    []string `name:"ce-extensions" group:"Outbox" placeholder:"NAME=TEXT,..." help:"CloudEvents: extension attributes, with {column}"`
	MissingColumns  string   `name:"missing-columns" group:"Outbox" values:",error,ignore" help:"a column of header-columns or envelope-columns that the table does not have; empty: error"`
	PartitionColumn string   `name:"partition-column" group:"Outbox" placeholder:"COLUMN" help:"partition number; empty: by key"`
	TimestampColumn string   `name:"timestamp-column" group:"Outbox" placeholder:"COLUMN" help:"record timestamp; empty: commit time"`
	IDColumn        string   `name:"id-column" group:"Outbox" placeholder:"COLUMN" help:"event id, for deduplication and for messages"`
	IDHeader        string   `name:"id-header" group:"Outbox" placeholder:"HEADER" help:"one more header for the id"`

	IdempotencyKeyColumn string `name:"idempotency-key-column" group:"Outbox" placeholder:"COLUMN" help:"idempotency key, a header"`
	IdempotencyKey       string `name:"idempotency-key" group:"Outbox" values:",derived,none" help:"derived: sha256 of event id|topic|key where the column has none; none: no such header"`
	IdempotencyHeader    string `name:"idempotency-header" group:"Outbox" placeholder:"HEADER" help:"its header; empty: idempotency-key"`

	SchemaFormat  string `name:"schema-format" group:"Outbox" values:",avro,protobuf,json" help:"prefix values with a schema's id of the registry; empty: do not"`
	SchemaSubject string `name:"schema-subject" group:"Outbox" placeholder:"TEXT" help:"the schema's subject, with {topic} and {column}; empty: {topic}-value"`
	SchemaVersion string `name:"schema-version" group:"Outbox" placeholder:"N" help:"the subject's version, a number or {column}; empty: the latest"`
	SchemaID      string `name:"schema-id" group:"Outbox" placeholder:"N" help:"the schema by its id, a number or {column}, whatever the subject"`
	SchemaFile    string `name:"schema-file" group:"Outbox" placeholder:"FILE" help:"register this file's schema under the subject, and use it"`
	SchemaMessage string `name:"schema-message" group:"Outbox" placeholder:"NAME" help:"protobuf: full name of the message; empty: the schema's first"`
	SchemaCheck   bool   `name:"schema-check" group:"Outbox" default:"false" help:"refuse a value that does not fit its schema"`
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
