import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

import io.debezium.transforms.outbox.EventRouter;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.internals.BuiltInPartitioner;
import org.apache.kafka.common.header.internals.RecordHeaders;
import org.apache.kafka.common.internals.Topic;
import org.apache.kafka.connect.data.Struct;
import org.apache.kafka.connect.header.Header;
import org.apache.kafka.connect.source.SourceRecord;
import org.apache.kafka.connect.storage.Converter;
import org.apache.kafka.connect.storage.ConverterConfig;
import org.apache.kafka.connect.storage.ConverterType;
import org.apache.kafka.connect.storage.HeaderConverter;
import org.apache.kafka.connect.util.ConnectUtils;

/**
 * The outbox event router and the converters behind it: what a Connect worker does
 * with a change event before it calls the producer
 * (AbstractWorkerSourceTask.convertTransformedRecord).
 */
final class Router {
    private final EventRouter<SourceRecord> router = new EventRouter<>();
    private final Converter keys;
    private final Converter values;
    private final HeaderConverter headers;

    /** Options and converters by the names they have in a connector's configuration. */
    Router(Map<String, String> options, Map<String, String> converters) throws Exception {
        router.configure(options);
        keys = (Converter) create(converters, "key.converter");
        keys.configure(settings(converters, "key.converter", ConverterType.KEY), true);
        values = (Converter) create(converters, "value.converter");
        values.configure(settings(converters, "value.converter", ConverterType.VALUE), false);
        headers = (HeaderConverter) create(converters, "header.converter");
        headers.configure(settings(converters, "header.converter", ConverterType.HEADER));
    }

    private static Object create(Map<String, String> converters, String name) throws Exception {
        return Class.forName(converters.get(name)).getDeclaredConstructor().newInstance();
    }

    /** What stands below a name, as Connect hands it to the converter. */
    private static Map<String, Object> settings(Map<String, String> converters, String name, ConverterType type) {
        Map<String, Object> settings = new HashMap<>();
        converters.forEach((key, value) -> {
            if (key.startsWith(name + ".")) {
                settings.put(key.substring(name.length() + 1), value);
            }
        });
        settings.put(ConverterConfig.TYPE_CONFIG, type.getName());
        return settings;
    }

    /** Puts into answer what the producer would be given. */
    void route(SourceRecord change, int partitions, Map<String, Object> answer) {
        SourceRecord record = router.apply(change);
        if (record == null) {
            answer.put("outcome", "nothing");
            return;
        }
        String topic = record.topic();
        RecordHeaders converted = new RecordHeaders();
        List<Object> list = new ArrayList<>();
        for (Header header : record.headers()) {
            byte[] value = headers.fromConnectHeader(topic, header.key(), header.schema(), header.value());
            converted.add(header.key(), value);
            Map<String, Object> pair = new HashMap<>();
            pair.put("name", header.key());
            pair.put("value", value);
            list.add(pair);
        }
        byte[] key = keys.fromConnectData(topic, converted, record.keySchema(), record.key());
        byte[] value = values.fromConnectData(topic, converted, record.valueSchema(), record.value());
        // The last who refuse: the record's own checks, and the broker's of the name.
        ProducerRecord<byte[], byte[]> last = new ProducerRecord<>(topic, record.kafkaPartition(),
                ConnectUtils.checkAndConvertTimestamp(record.timestamp()), key, value, converted);
        Topic.validate(topic);
        answer.put("outcome", "record");
        answer.put("topic", last.topic());
        answer.put("key", last.key());
        answer.put("value", last.value());
        answer.put("headers", list);
        answer.put("timestamp", last.timestamp());
        answer.put("processed", ((Struct) change.value()).getInt64("ts_ms"));
        if (last.partition() != null) {
            answer.put("partition", last.partition());
        }
        else if (key != null) { // the producer's choice
            answer.put("partition", BuiltInPartitioner.partitionForKey(key, partitions));
        }
    }
}
