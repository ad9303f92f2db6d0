import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** Clients with the client's own defaults, except for what a promise says. */
final class Clients {
    private static Map<String, Object> settings(Object... pairs) {
        Map<String, Object> settings = new HashMap<>();
        settings.put("bootstrap.servers", Promises.address);
        for (int at = 0; at < pairs.length; at += 2) {
            settings.put((String) pairs[at], pairs[at + 1]);
        }
        return settings;
    }

    static KafkaProducer<String, String> producer(Object... pairs) {
        Map<String, Object> settings = settings(pairs);
        settings.putIfAbsent("linger.ms", 5);
        return new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer());
    }

    static KafkaConsumer<String, String> consumer(Object... pairs) {
        Map<String, Object> settings = settings(pairs);
        settings.putIfAbsent("auto.offset.reset", "earliest");
        settings.putIfAbsent("enable.auto.commit", false);
        settings.putIfAbsent("heartbeat.interval.ms", 100);
        settings.putIfAbsent("session.timeout.ms", 6000);
        return new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
    }

    static Admin admin() {
        return Admin.create(settings());
    }

    static void create(String topic, int partitions, String... config) throws Exception {
        Map<String, String> settings = new HashMap<>();
        for (int at = 0; at < config.length; at += 2) {
            settings.put(config[at], config[at + 1]);
        }
        try (Admin admin = admin()) {
            NewTopic wanted = new NewTopic(topic, partitions, (short) 1).configs(settings);
            admin.createTopics(List.of(wanted)).all().get();
        }
    }

    static List<TopicPartition> partitions(String topic, int count) {
        return IntStream.range(0, count).mapToObj(i -> new TopicPartition(topic, i)).toList();
    }

    static TopicPartition first(String topic) {
        return new TopicPartition(topic, 0);
    }

    /** Values 0, 1, 2... into partition 0, in one burst. */
    static void fill(String topic, int count) {
        try (KafkaProducer<String, String> producer = producer()) {
            for (int i = 0; i < count; i++) {
                producer.send(new ProducerRecord<>(topic, 0, "k" + i, "" + i));
            }
        }
    }

    static List<ConsumerRecord<String, String>> poll(
            KafkaConsumer<String, String> consumer, int count) throws Exception {
        List<ConsumerRecord<String, String>> records = new ArrayList<>();
        Promises.eventually(count + " records are read", () -> {
            consumer.poll(Duration.ofMillis(100)).forEach(records::add);
            return records.size() >= count;
        });
        Promises.same(count, records.size());
        return records;
    }

    /** All there is to read now, up to the end that this isolation level shows. */
    static List<ConsumerRecord<String, String>> read(
            Collection<TopicPartition> partitions, String isolation) throws Exception {
        List<ConsumerRecord<String, String>> records = new ArrayList<>();
        try (KafkaConsumer<String, String> consumer = consumer("isolation.level", isolation)) {
            consumer.assign(partitions);
            Map<TopicPartition, Long> ends = consumer.endOffsets(partitions);
            Promises.eventually("everything is read", () -> {
                consumer.poll(Duration.ofMillis(50)).forEach(records::add);
                return ends.entrySet().stream()
                        .allMatch(end -> consumer.position(end.getKey()) >= end.getValue());
            });
        }
        return records;
    }

    static List<String> values(String topic, String isolation) throws Exception {
        return values(read(List.of(first(topic)), isolation));
    }

    static List<String> values(List<ConsumerRecord<String, String>> records) {
        return records.stream().map(ConsumerRecord::value).collect(Collectors.toList());
    }

    static List<String> numbers(int from, int to) {
        return IntStream.range(from, to).mapToObj(i -> "" + i).collect(Collectors.toList());
    }

    static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }
}
