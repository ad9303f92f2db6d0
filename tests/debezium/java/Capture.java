import io.debezium.embedded.Connect;
import io.debezium.engine.ChangeEvent;
import io.debezium.engine.DebeziumEngine;
import java.io.PrintWriter;
import java.io.Reader;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.header.Header;
import org.apache.kafka.connect.json.JsonConverter;
import org.apache.kafka.connect.source.SourceRecord;

/**
 * Runs Debezium's engine once for each file of properties, side by side, and writes what it emits
 * to a file beside each: a line of a topic, a key, a value and headers, with tabs between them,
 * and a line that begins with "schema" wherever a topic's schemas have changed. An engine ends
 * after a record of the topic whose name ends in ".zz_end".
 */
public final class Capture {
    private final Map<String, List<Schema>> schemas = new HashMap<>();
    private final JsonConverter keys = converter(true, false);
    private final JsonConverter values = converter(false, false);
    private final JsonConverter whole = converter(false, true);
    private final JsonConverter wholeKeys = converter(true, true);
    private final PrintWriter output;
    private final CountDownLatch done = new CountDownLatch(1);

    private Capture(Path path) throws Exception {
        output = new PrintWriter(Files.newBufferedWriter(path));
    }

    private static JsonConverter converter(boolean isKey, boolean hasSchemas) {
        JsonConverter converter = new JsonConverter();
        converter.configure(
                Map.of("schemas.enable", hasSchemas, "replace.null.with.default", false), isKey);
        return converter;
    }

    private void take(SourceRecord record) {
        String topic = record.topic();
        List<Schema> now = new ArrayList<>();
        now.add(record.keySchema());
        if (record.value() != null) {
            now.add(record.valueSchema());
            if (!now.equals(schemas.put(topic, now))) {
                output.println("schema\t" + topic
                        + "\t" + text(wholeKeys, topic, record.keySchema(), record.key())
                        + "\t" + text(whole, topic, record.valueSchema(), record.value()));
            }
        }
        StringBuilder headers = new StringBuilder();
        for (Header header : record.headers()) {
            if (!header.key().startsWith("__debezium.context")) {
                headers.append(header.key()).append('=').append(
                        text(keys, topic, header.schema(), header.value())).append(' ');
            }
        }
        output.println(topic
                + "\t" + text(keys, topic, record.keySchema(), record.key())
                + "\t" + text(values, topic, record.valueSchema(), record.value())
                + "\t" + headers);
        if (topic.endsWith(".zz_end")) {
            output.close();
            done.countDown();
        }
    }

    private static String text(JsonConverter converter, String topic, Schema schema, Object value) {
        byte[] found = converter.fromConnectData(topic, schema, value);
        return found == null ? "" : new String(found, java.nio.charset.StandardCharsets.UTF_8);
    }

    public static void main(String[] files) throws Exception {
        List<Capture> captures = new ArrayList<>();
        for (String file : files) {
            Properties properties = new Properties();
            try (Reader reader = Files.newBufferedReader(Path.of(file))) {
                properties.load(reader);
            }
            Capture capture = new Capture(Path.of(file + ".events"));
            DebeziumEngine<ChangeEvent<SourceRecord, SourceRecord>> engine =
                    DebeziumEngine.create(Connect.class)
                            .using(properties)
                            .using((isSuccess, message, error) -> {
                                System.err.println(file + ": " + message);
                                if (error != null) {
                                    error.printStackTrace();
                                }
                                capture.done.countDown();
                            })
                            .notifying(event -> capture.take(event.value()))
                            .build();
            Thread runner = new Thread(engine);
            runner.setDaemon(true);
            runner.start();
            captures.add(capture);
        }
        for (Capture capture : captures) {
            capture.done.await();
        }
        System.exit(0);
    }
}
