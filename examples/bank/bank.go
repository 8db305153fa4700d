package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// bank is the demo's database, and everything that goes with it.
type bank struct {
	servers  *servers
	database string
	topic    string
	postgres string // URL or DSN of the database
	relay    string // the same, for walstream
	made     bool   // the database, by us
}

// openBank makes the database with its tables. What is there already is not the
// demo's: it is neither used nor removed.
func openBank(ctx context.Context, s *servers, o options) (*bank, error) {
	b := &bank{servers: s, database: o.database, topic: o.topic, postgres: withDatabase(s.postgres, o.database)}
	b.relay = b.postgres
	if err := b.refuseOthers(ctx); err != nil {
		return nil, err
	}
	if err := b.make(ctx); err != nil {
		return nil, errors.Join(err, b.remove())
	}
	return b, nil
}

func (b *bank) slot() string     { return b.database + "_outbox_slot" }
func (b *bank) pipeline() string { return b.database + "." + b.slot() }

// topics are the one of the events and walstream's own.
func (b *bank) topics() []string {
	return []string{b.topic, "walstream.checkpoints." + b.pipeline(), "walstream.history." + b.pipeline()}
}

// walstreamArgs is walstream's command line. Where PostgreSQL is goes into a
// variable: others can see a command line, and the address may hold a password.
func (b *bank) walstreamArgs() []string {
	return []string{
		"--slot", b.slot(), "--create-topics", "--topic-partitions", "6",
		"--kafka-brokers", strings.Join(b.servers.brokers, ","),
	}
}

// refuseOthers fails when something of the names that will be used exists.
func (b *bank) refuseOthers(ctx context.Context) error {
	db, err := b.servers.connect(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = db.Close(context.WithoutCancel(ctx)) }()
	var database, slot bool
	err = db.QueryRow(ctx, `
		SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1),
		       EXISTS (SELECT FROM pg_replication_slots WHERE slot_name = $2)`, b.database, b.slot()).Scan(&database, &slot)
	if err != nil {
		return fmt.Errorf("look for database %q and slot %q: %w", b.database, b.slot(), err)
	}
	var found []string
	if slot {
		found = append(found, fmt.Sprintf("slot %[1]q: SELECT pg_drop_replication_slot('%[1]s')", b.slot()))
	}
	if database {
		found = append(found, fmt.Sprintf("database %[1]q: DROP DATABASE %[1]s", b.database))
	}
	err = b.withKafka(func(admin *kadm.Client) error {
		details, err := admin.ListTopics(ctx, b.topics()...)
		if err != nil {
			return fmt.Errorf("list the topics of Kafka at %s: %w", strings.Join(b.servers.brokers, ","), err)
		}
		for _, topic := range b.topics() {
			if details.Has(topic) {
				found = append(found, fmt.Sprintf("topic %[1]q: kafka-topics.sh --delete --topic %[1]s", topic))
			}
		}
		return nil
	})
	if err == nil && len(found) > 0 {
		err = fmt.Errorf("these exist, and may be somebody's: remove them, or name others with -database and -topic\n  %s",
			strings.Join(found, "\n  "))
	}
	return err
}

func (b *bank) make(ctx context.Context) error {
	db, err := b.servers.connect(ctx)
	if err != nil {
		return err
	}
	_, err = db.Exec(ctx, "CREATE DATABASE "+b.database+" TEMPLATE template0")
	_ = db.Close(context.WithoutCancel(ctx))
	if err != nil {
		return fmt.Errorf("make database %q: %w", b.database, err)
	}
	b.made = true
	return b.makeTables(ctx)
}

// removeWait bounds the removal; a walsender holds its slot for a moment after
// its client has gone.
const removeWait = 30 * time.Second

// remove drops what the demo made, where that does not go with the server: a
// slot that nobody reads would fill the disk of whoever gave us the server.
func (b *bank) remove() error {
	ctx, cancel := context.WithTimeout(context.Background(), removeWait)
	defer cancel()
	var faults []error
	if b.made && b.servers.ownPostgres == nil {
		if err := b.removeDatabase(ctx); err != nil {
			faults = append(faults, fmt.Errorf("remove slot %q and database %q (please do it by hand): %w", b.slot(), b.database, err))
		}
	}
	if b.made && b.servers.ownKafka == nil {
		if err := b.removeTopics(ctx); err != nil {
			faults = append(faults, fmt.Errorf("remove the topics %s (please do it by hand): %w", strings.Join(b.topics(), ", "), err))
		}
	}
	return errors.Join(faults...)
}

func (b *bank) removeDatabase(ctx context.Context) error {
	db, err := b.servers.connect(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = db.Close(context.WithoutCancel(ctx)) }()
	for {
		_, err := db.Exec(ctx, `
			SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots
			WHERE slot_name = $1 AND database = $2`, b.slot(), b.database)
		if err == nil {
			break
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(100 * time.Millisecond):
		}
	}
	_, err = db.Exec(ctx, "DROP DATABASE "+b.database+" WITH (FORCE)")
	return err
}

func (b *bank) removeTopics(ctx context.Context) error {
	return b.withKafka(func(admin *kadm.Client) error {
		details, err := admin.ListTopics(ctx, b.topics()...)
		if err != nil {
			return err
		}
		made := slices.DeleteFunc(b.topics(), func(topic string) bool { return !details.Has(topic) })
		if len(made) == 0 {
			return nil
		}
		deleted, err := admin.DeleteTopics(ctx, made...)
		if err != nil {
			return err
		}
		return deleted.Error()
	})
}

func (b *bank) withKafka(do func(*kadm.Client) error) error {
	client, err := kgo.NewClient(kgo.SeedBrokers(b.servers.brokers...))
	if err != nil {
		return err
	}
	defer client.Close()
	return do(kadm.NewClient(client))
}

// withDatabase is a URL or DSN with another database.
func withDatabase(postgres, database string) string {
	scheme, _, isURL := strings.Cut(postgres, "://")
	if !isURL || scheme != "postgres" && scheme != "postgresql" {
		return postgres + " dbname=" + database // of a key given twice the last counts
	}
	at, err := url.Parse(postgres)
	if err != nil {
		return postgres // pgx says what is wrong with it, without the password
	}
	at.Path = "/" + database
	query := at.Query()
	query.Del("dbname")
	at.RawQuery = query.Encode()
	return at.String()
}

// withoutPassword is a URL that tells people where a database is.
func withoutPassword(postgres string) string {
	config, err := pgx.ParseConfig(postgres)
	if err != nil {
		return "postgres://..." // the connection will say what is wrong
	}
	return (&url.URL{
		Scheme: "postgres", User: url.User(config.User),
		Host: net.JoinHostPort(config.Host, strconv.Itoa(int(config.Port))), Path: "/" + config.Database,
	}).String()
}
