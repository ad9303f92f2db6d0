import io.debezium.engine.ChangeEvent;
import io.debezium.engine.DebeziumEngine;
import io.debezium.engine.format.Json;
import java.io.Reader;
import java.lang.management.ManagementFactory;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicLong;

/**
 * Runs Debezium's engine over a file of properties until so many events have come, and prints when
 * the first and the last did, in milliseconds since the JVM was started. With a third argument it
 * prints key and time of each event as well, in microseconds of Unix time.
 */
public final class Measure {
    public static void main(String[] arguments) throws Exception {
        Properties properties = new Properties();
        try (Reader reader = Files.newBufferedReader(Path.of(arguments[0]))) {
            properties.load(reader);
        }
        long wanted = Long.parseLong(arguments[1]);
        boolean isTimed = arguments.length > 2;
        long started = ManagementFactory.getRuntimeMXBean().getStartTime();
        AtomicLong first = new AtomicLong();
        AtomicLong count = new AtomicLong();
        AtomicLong bytes = new AtomicLong();
        StringBuilder times = new StringBuilder();
        CountDownLatch done = new CountDownLatch(1);
        DebeziumEngine<ChangeEvent<String, String>> engine = DebeziumEngine.create(Json.class)
                .using(properties)
                .notifying(event -> {
                    if (event.value() == null || count.get() >= wanted) {
                        return;
                    }
                    if (first.get() == 0) {
                        first.set(System.currentTimeMillis());
                    }
                    if (isTimed) {
                        java.time.Instant now = java.time.Instant.now();
                        long micros = now.getEpochSecond() * 1_000_000 + now.getNano() / 1_000;
                        times.append(event.key()).append('\t').append(micros).append('\n');
                    }
                    bytes.addAndGet(event.value().length());
                    if (count.incrementAndGet() == wanted) {
                        done.countDown();
                    }
                })
                .using((success, message, error) -> {
                    System.err.println(message); // it has ended before the last event
                    Runtime.getRuntime().halt(1);
                })
                .build();
        Thread running = new Thread(engine);
        running.setDaemon(true);
        running.start();
        done.await();
        long last = System.currentTimeMillis();
        System.out.print(times);
        System.out.println("{\"first_ms\": " + (first.get() - started) + ", \"last_ms\": "
                + (last - started) + ", \"rows\": " + count.get() + ", \"bytes\": " + bytes.get()
                + "}");
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }
}
