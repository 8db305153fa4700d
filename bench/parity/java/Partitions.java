import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Base64;
import java.util.LinkedHashSet;
import java.util.Random;
import java.util.Set;
import java.util.UUID;

import org.apache.kafka.clients.producer.internals.BuiltInPartitioner;

/**
 * Prints where Kafka's own producer sends keys: a line for each key, its bytes in
 * base64, then its partition among as many as COUNTS say.
 */
final class Partitions {
    private static final int[] COUNTS = {1, 2, 3, 6, 7, 12, 50, 100, 1000, 65536};

    private Partitions() {
    }

    static void print(PrintStream out) {
        out.print("key");
        for (int count : COUNTS) {
            out.print(" " + count);
        }
        out.println();
        for (ByteBuffer key : keys()) {
            StringBuilder line = new StringBuilder("=" + Base64.getEncoder().encodeToString(key.array()));
            for (int count : COUNTS) {
                line.append(' ').append(BuiltInPartitioner.partitionForKey(key.array(), count));
            }
            out.println(line);
        }
    }

    /** Every length up to 64 (murmur2 takes four bytes at a time), all bits set and none, and texts as keys are. */
    private static Set<ByteBuffer> keys() {
        Random random = new Random(20261130);
        Set<ByteBuffer> keys = new LinkedHashSet<>();
        for (int length = 0; length <= 64; length++) {
            for (int n = 0; n < 2; n++) {
                byte[] key = new byte[length];
                random.nextBytes(key);
                keys.add(ByteBuffer.wrap(key));
            }
        }
        for (int length : new int[]{1, 3, 4, 5, 16, 256}) {
            byte[] ones = new byte[length];
            Arrays.fill(ones, (byte) 0xff);
            keys.add(ByteBuffer.wrap(new byte[length]));
            keys.add(ByteBuffer.wrap(ones));
        }
        for (int n = 0; n < 100; n++) {
            keys.add(text(Long.toString(n * 7919L)));
            keys.add(text(new UUID(random.nextLong(), random.nextLong()).toString()));
        }
        for (String text : new String[]{"a", "customer-42", "Zürich", "注文", "🙂", "\u0000", "{\"id\":1}", "\"quoted\""}) {
            keys.add(text(text));
        }
        return keys;
    }

    private static ByteBuffer text(String text) {
        return ByteBuffer.wrap(text.getBytes(StandardCharsets.UTF_8));
    }
}
