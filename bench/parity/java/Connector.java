import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;

import io.debezium.embedded.Connect;
import io.debezium.engine.ChangeEvent;
import io.debezium.engine.DebeziumEngine;
import org.apache.kafka.connect.data.Struct;
import org.apache.kafka.connect.source.SourceRecord;

/**
 * Debezium's PostgreSQL connector, run by its own embedded engine instead of a
 * Connect worker. It keeps the change events it read, by transaction.
 */
final class Connector implements AutoCloseable {
    private static final long LIMIT_MS = 120_000;

    private final int number;
    private final Map<String, String> postgres;
    private final Map<Long, SourceRecord> changes = new ConcurrentHashMap<>();
    private final ExecutorService thread = Executors.newSingleThreadExecutor();
    private final DebeziumEngine<ChangeEvent<SourceRecord, SourceRecord>> engine;
    private volatile boolean streams;
    private volatile String failure;

    Connector(int number, Map<String, String> postgres, Map<String, String> options) {
        this.number = number;
        this.postgres = postgres;
        Properties p = new Properties();
        p.setProperty("name", "parity-" + number);
        p.setProperty("connector.class", "io.debezium.connector.postgresql.PostgresConnector");
        p.setProperty("offset.storage", "org.apache.kafka.connect.storage.MemoryOffsetBackingStore");
        p.setProperty("topic.prefix", "parity" + number); // also the name of its metrics, which must differ
        p.setProperty("plugin.name", "pgoutput");
        p.setProperty("slot.name", "parity_debezium_" + number);
        p.setProperty("publication.name", postgres.get("publication"));
        p.setProperty("publication.autocreate.mode", "disabled");
        p.setProperty("snapshot.mode", "no_data");
        p.setProperty("poll.interval.ms", "50");
        p.setProperty("database.hostname", postgres.get("host"));
        p.setProperty("database.port", postgres.get("port"));
        p.setProperty("database.user", postgres.get("user"));
        p.setProperty("database.password", postgres.get("password"));
        p.setProperty("database.dbname", postgres.get("database"));
        p.putAll(options);
        engine = DebeziumEngine.create(Connect.class).using(p).notifying(this::take)
                .using((success, message, error) -> {
                    if (!success) {
                        failure = message + ": " + error;
                    }
                }).build();
        thread.execute(engine);
    }

    private void take(ChangeEvent<SourceRecord, SourceRecord> event) {
        SourceRecord record = event.value();
        if (!(record.value() instanceof Struct change) || change.schema().field("source") == null) {
            return; // the tombstone behind a delete
        }
        Struct source = change.getStruct("source");
        if (source.getString("table").equals("probe")) {
            streams = true;
        }
        else if (changes.put(source.getInt64("txId"), record) != null) {
            failure = "transaction " + source.getInt64("txId") + " wrote two rows";
        }
    }

    /**
     * The connector starts at the end of the WAL and does not tell when it has got
     * there: rows of a table of their own are written until one arrives.
     */
    void awaitStreaming() throws Exception {
        String url = "jdbc:postgresql://" + postgres.get("host") + ":" + postgres.get("port") + "/" + postgres.get("database");
        try (Connection db = DriverManager.getConnection(url, postgres.get("user"), postgres.get("password"));
                PreparedStatement probe = db.prepareStatement("INSERT INTO parity.probe DEFAULT VALUES")) {
            await("streaming", () -> streams, () -> probe.executeUpdate());
        }
    }

    /** The change event of a transaction. */
    SourceRecord change(long xid) throws Exception {
        await("the row of transaction " + xid, () -> changes.containsKey(xid), () -> 0);
        return changes.get(xid);
    }

    private interface Condition {
        boolean holds();
    }

    private interface Step {
        int run() throws Exception;
    }

    private void await(String what, Condition condition, Step each) throws Exception {
        long end = System.currentTimeMillis() + LIMIT_MS;
        while (!condition.holds()) {
            if (failure != null || System.currentTimeMillis() > end) {
                throw new IllegalStateException("connector " + number + " waits for " + what + ": " + failure);
            }
            each.run();
            TimeUnit.MILLISECONDS.sleep(100);
        }
    }

    @Override
    public void close() throws Exception {
        engine.close();
        thread.shutdownNow();
    }
}
