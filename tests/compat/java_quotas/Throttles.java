import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.net.InetAddress;
import java.nio.charset.StandardCharsets;
import java.util.Optional;
import java.util.concurrent.TimeUnit;
import java.util.function.Supplier;
import org.apache.kafka.common.errors.ThrottlingQuotaExceededException;
import org.apache.kafka.common.metrics.KafkaMetric;
import org.apache.kafka.common.metrics.MetricConfig;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.metrics.Quota;
import org.apache.kafka.common.metrics.Sensor;
import org.apache.kafka.common.metrics.stats.SimpleRate;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.network.Session;
import org.apache.kafka.server.config.ClientQuotaManagerConfig;
import org.apache.kafka.server.quota.ClientQuotaEntity.ConfigEntity;
import org.apache.kafka.server.quota.ClientQuotaManager;
import org.apache.kafka.server.quota.ControllerMutationQuotaManager;
import org.apache.kafka.server.quota.QuotaType;
import org.apache.kafka.server.config.ReplicationQuotaManagerConfig;

/** Kafka's own quota managers answer for what clients use, one line each from standard input. */
final class Throttles {
    /** A clock that a line sets. */
    private static final class Hands implements Time {
        private long nowMs;

        public long milliseconds() {
            return nowMs;
        }

        public long nanoseconds() {
            return nowMs * 1_000_000;
        }

        public void sleep(long ms) {
            nowMs += ms;
        }

        public void waitObject(Object lock, Supplier<Boolean> condition, long deadlineMs) {
            throw new UnsupportedOperationException();
        }
    }

    private final Hands clock = new Hands();
    private final ClientQuotaManager bytes;
    private final ControllerMutationQuotaManager mutations;

    private final Metrics ofReplication = new Metrics(clock);
    private final Sensor copied = ofReplication.sensor("copied");
    private final KafkaMetric rate;

    private Throttles() {
        ClientQuotaManagerConfig config = new ClientQuotaManagerConfig();
        bytes = new ClientQuotaManager(
                config, new Metrics(clock), QuotaType.PRODUCE, clock, "bytes");
        mutations = new ControllerMutationQuotaManager(
                config, new Metrics(clock), clock, "mutations", Optional.empty());
        ReplicationQuotaManagerConfig windows = new ReplicationQuotaManagerConfig();
        MetricConfig metric = new MetricConfig()
                .timeWindow(windows.quotaWindowSizeSeconds, TimeUnit.SECONDS)
                .samples(windows.numQuotaSamples);
        var name = ofReplication.metricName("byte-rate", "replication");
        copied.add(name, new SimpleRate(), metric);
        rate = ofReplication.metric(name);
    }

    /** As ReplicationQuotaManager counts, which has no way to ask for the rate itself. */
    private String copy(String[] words) {
        clock.nowMs = Long.parseLong(words[2]);
        copied.record(Double.parseDouble(words[1]), clock.nowMs, false);
        return "" + rate.metricValue();
    }

    private void close() {
        bytes.initiateShutdown();
        mutations.initiateShutdown();
    }

    private static Optional<ConfigEntity> user(String name) {
        return switch (name) {
            case "-" -> Optional.empty();
            case "*" -> Optional.of(ClientQuotaManager.DEFAULT_USER_ENTITY);
            default -> Optional.of(new ClientQuotaManager.UserEntity(name));
        };
    }

    private static Optional<ConfigEntity> client(String name) {
        return switch (name) {
            case "-" -> Optional.empty();
            case "*" -> Optional.of(ClientQuotaManager.DEFAULT_USER_CLIENT_ID);
            default -> Optional.of(new ClientQuotaManager.ClientIdEntity(name));
        };
    }

    private String answer(String[] words) {
        if (words[0].equals("copy")) {
            return copy(words);
        }
        String name = words[2].equals("-") ? "" : words[2];
        KafkaPrincipal principal = new KafkaPrincipal("User", words[1]);
        Session session = new Session(principal, InetAddress.getLoopbackAddress());
        double value = Double.parseDouble(words[3]);
        if (words[0].equals("limit")) {
            Optional<Quota> quota =
                    value == 0 ? Optional.empty() : Optional.of(Quota.upperBound(value));
            bytes.updateQuota(user(words[1]), client(words[2]), quota);
            mutations.updateQuota(user(words[1]), client(words[2]), quota);
            return "limit";
        }
        clock.nowMs = Long.parseLong(words[4]);
        if (words[0].equals("use")) {
            return "" + bytes.maybeRecordAndGetThrottleTimeMs(session, name, value, clock.nowMs);
        }
        var quota = words[0].equals("strict")
                ? mutations.newStrictQuotaFor(session, name)
                : mutations.newPermissiveQuotaFor(session, name);
        try {
            quota.record(value);
            return "true " + quota.throttleTime();
        } catch (ThrottlingQuotaExceededException over) {
            return "false " + quota.throttleTime();
        }
    }

    public static void main(String[] arguments) throws java.io.IOException {
        BufferedReader lines =
                new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        Throttles world = new Throttles();
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            if (line.equals("new")) {
                world.close();
                world = new Throttles();
                System.out.println("new");
            } else {
                System.out.println(world.answer(line.split(" ")));
            }
        }
        world.close();
        System.exit(0);
    }
}
