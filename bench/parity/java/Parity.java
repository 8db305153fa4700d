import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

import com.fasterxml.jackson.core.type.TypeReference;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import org.apache.kafka.connect.source.SourceRecord;

/**
 * What Debezium makes of rows: the real connector reads them from PostgreSQL, the
 * real outbox event router and Connect's converters make records of them.
 *
 * <pre>
 * stdin                                     stdout
 * {"postgres": {...}, "connectors": [...]}
 *                                           {"ready": true}     every connector streams
 * {"case": ..., "connector": 0, "xid": ...,
 *  "router": {...}, "converters": {...}}    ...one line for each row, written meanwhile
 * end of file
 *                                           {"case": ..., "outcome": ...}, in their order
 * </pre>
 *
 * A case is one row, known by the transaction that wrote it. Cases of one group
 * share a router, as rows of one table do. Logs go to stderr.
 */
public class Parity {
    private static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] args) throws Exception {
        // Whatever a library prints must not stand among the answers.
        PrintStream answers = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        System.setOut(System.err);
        if (args.length > 0 && args[0].equals("partitions")) {
            Partitions.print(answers);
            return;
        }
        Tracing.install();
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        JsonNode setup = JSON.readTree(in.readLine());
        List<Connector> connectors = new ArrayList<>();
        try {
            for (JsonNode options : setup.get("connectors")) {
                connectors.add(new Connector(connectors.size(), strings(setup.get("postgres")), strings(options)));
            }
            for (Connector connector : connectors) {
                connector.awaitStreaming();
            }
            answers.println("{\"ready\":true}");
            answer(in, connectors, answers);
        }
        finally {
            for (Connector connector : connectors) {
                connector.close();
            }
        }
    }

    private static void answer(BufferedReader in, List<Connector> connectors, PrintStream answers) throws Exception {
        List<JsonNode> cases = new ArrayList<>();
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            cases.add(JSON.readTree(line));
        }
        Map<String, Router> routers = new LinkedHashMap<>();
        for (JsonNode c : cases) {
            SourceRecord change = connectors.get(c.get("connector").asInt()).change(c.get("xid").asLong());
            Map<String, Object> answer = new LinkedHashMap<>();
            answer.put("case", c.get("case").asText());
            try {
                String group = c.get("group").asText();
                Router router = routers.get(group);
                if (router == null) {
                    router = new Router(strings(c.get("router")), strings(c.get("converters")));
                    routers.put(group, router);
                }
                router.route(change, c.get("partitions").asInt(), answer);
            }
            catch (Exception e) { // with which Connect fails the task
                answer.put("outcome", "refused");
                answer.put("error", root(e));
            }
            answers.println(JSON.writeValueAsString(answer));
        }
    }

    /** The innermost cause, which says what was wrong. */
    private static String root(Throwable e) {
        while (e.getCause() != null) {
            e = e.getCause();
        }
        return e.getClass().getSimpleName() + ": " + e.getMessage();
    }

    private static Map<String, String> strings(JsonNode node) {
        return JSON.convertValue(node, new TypeReference<LinkedHashMap<String, String>>() {});
    }
}
