package connect

import (
	"context"
	"fmt"
	"maps"

	"github.com/jackc/pgx/v5"

	"github.com/walstream/walstream/internal/testenv"
)

// Connector is a PostgreSQL connector of Debezium with its outbox event router, in
// the settings of a connector.
type Connector struct {
	Name        string
	Postgres    *testenv.Postgres
	Database    string
	Table       string // schema.table
	Slot        string
	Publication string
	// Settings go over Base and those that the fields stand for.
	Settings map[string]string
}

// Config is what Connect is given.
func (c *Connector) Config() map[string]string {
	p := map[string]string{
		"connector.class": "io.debezium.connector.postgresql.PostgresConnector", "tasks.max": "1",
		"database.hostname": c.Postgres.Host, "database.port": fmt.Sprint(c.Postgres.Port), "database.user": c.Postgres.User,
		"database.password": c.Postgres.Password, "database.dbname": c.Database,
		"topic.prefix": c.Name, "plugin.name": "pgoutput", "slot.name": c.Slot, "publication.name": c.Publication,
		"publication.autocreate.mode": "filtered", "table.include.list": c.Table, "snapshot.mode": "no_data",
		"tombstones.on.delete": "false",
		"transforms":           "outbox", "transforms.outbox.type": "io.debezium.transforms.outbox.EventRouter",
		"key.converter":   "org.apache.kafka.connect.storage.StringConverter",
		"value.converter": "io.debezium.converters.BinaryDataConverter",
		"value.converter.delegate.converter.type":                "org.apache.kafka.connect.storage.StringConverter",
		"value.converter.delegate.converter.type.schemas.enable": "false",
		"topic.creation.default.partitions":                      "3", "topic.creation.default.replication.factor": "1",
	}
	maps.Copy(p, c.Settings)
	return p
}

// Tuned are the settings people reach for when Debezium is too slow: larger
// batches on their way through the queue and into the producer, and a poll that
// does not wait half a second.
func Tuned() map[string]string {
	return map[string]string{
		"max.batch.size": "8192", "max.queue.size": "32768", "poll.interval.ms": "10",
		"producer.override.linger.ms": "5", "producer.override.batch.size": "262144", "producer.override.buffer.memory": "67108864",
		"producer.override.compression.type": "none",
	}
}

// ExactlyOnce are the settings of a connector on a worker with ExactlyOnce: a
// transaction of Kafka for each batch that was polled.
func ExactlyOnce() map[string]string {
	return map[string]string{"exactly.once.support": "required", "transaction.boundary": "poll"}
}

// WaitStreaming waits until the connector reads from its slot.
func (w *Worker) WaitStreaming(ctx context.Context, c *Connector) error {
	if err := w.WaitState(ctx, c.Name, "RUNNING", 1); err != nil {
		return err
	}
	db, err := pgx.Connect(ctx, c.Postgres.DSN(c.Database))
	if err != nil {
		return err
	}
	defer func() { _ = db.Close(context.WithoutCancel(ctx)) }()
	return w.until(ctx, c.Name+" to stream", func() (streams bool, err error) {
		if err := w.Failed(ctx, c.Name); err != nil {
			return false, err
		}
		err = db.QueryRow(ctx, `SELECT count(*) = 1 FROM pg_replication_slots s JOIN pg_stat_replication r ON r.pid = s.active_pid
			WHERE s.slot_name = $1 AND r.state = 'streaming'`, c.Slot).Scan(&streams)
		return streams, err
	})
}
