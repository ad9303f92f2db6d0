import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.OptionalLong;
import org.apache.kafka.clients.consumer.CloseOptions;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.NoOffsetForPartitionException;
import org.apache.kafka.clients.consumer.OffsetAndTimestamp;
import org.apache.kafka.clients.consumer.OffsetOutOfRangeException;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;

/** A consumer without a group stands where it is put, and finds its way by offset and by time. */
final class Consuming {
    static void promise() {
        Promises.ALL.put("seek_and_pause", Consuming::seekAndPause);
        Promises.ALL.put("ends_of_the_log", Consuming::endsOfTheLog);
        Promises.ALL.put("offsets_for_times", Consuming::offsetsForTimes);
        Promises.ALL.put("reset_policies", Consuming::resetPolicies);
        Promises.ALL.put("a_record_larger_than_a_fetch", Consuming::largeRecord);
        Promises.ALL.put("a_long_poll_ends_with_the_record", Consuming::longPoll);
        Promises.ALL.put("partitions_and_topics", Consuming::partitionsAndTopics);
    }

    static void seekAndPause() throws Exception {
        Clients.create("seek", 2);
        Clients.fill("seek", 100);
        TopicPartition first = Clients.first("seek");
        try (KafkaConsumer<String, String> consumer = Clients.consumer("max.poll.records", 10)) {
            consumer.assign(Clients.partitions("seek", 2));
            consumer.seek(first, 90);
            Promises.same(Clients.numbers(90, 100), Clients.values(Clients.poll(consumer, 10)));
            consumer.seek(first, 42);
            Promises.same("42", Clients.poll(consumer, 10).get(0).value());
            consumer.pause(List.of(first));
            Promises.holds(consumer.poll(Duration.ofMillis(200)).isEmpty(), "paused is silent");
            consumer.resume(List.of(first));
            Promises.same("52", Clients.poll(consumer, 10).get(0).value());
            consumer.seekToEnd(List.of(first));
            Promises.same(100L, consumer.position(first));
            consumer.seekToBeginning(List.of(first));
            Promises.same("0", Clients.poll(consumer, 10).get(0).value());
            Promises.same(OptionalLong.of(90), consumer.currentLag(first));
        }
    }

    static void endsOfTheLog() throws Exception {
        Clients.create("ends", 2);
        Clients.fill("ends", 7);
        List<TopicPartition> both = Clients.partitions("ends", 2);
        try (KafkaConsumer<String, String> consumer = Clients.consumer()) {
            Promises.same(Map.of(both.get(0), 0L, both.get(1), 0L), consumer.beginningOffsets(both));
            Promises.same(Map.of(both.get(0), 7L, both.get(1), 0L), consumer.endOffsets(both));
        }
    }

    static void offsetsForTimes() throws Exception {
        Clients.create("times", 1);
        long start = System.currentTimeMillis() - 100_000;
        try (KafkaProducer<String, String> producer = Clients.producer("batch.size", 300)) {
            for (int i = 0; i < 100; i++) {
                producer.send(new ProducerRecord<>("times", 0, start + i * 10L, "k", "" + i));
            }
        }
        TopicPartition first = Clients.first("times");
        try (KafkaConsumer<String, String> consumer = Clients.consumer()) {
            for (int i : List.of(0, 1, 37, 99)) {
                OffsetAndTimestamp found =
                        consumer.offsetsForTimes(Map.of(first, start + i * 10L - 5)).get(first);
                Promises.same((long) i, found.offset());
                Promises.same(start + i * 10L, found.timestamp());
            }
            Promises.holds(
                    consumer.offsetsForTimes(Map.of(first, start + 991)).get(first) == null,
                    "after the last record there is nothing");
        }
    }

    static void resetPolicies() throws Exception {
        Clients.create("reset", 1);
        Clients.fill("reset", 10);
        TopicPartition first = Clients.first("reset");
        try (KafkaConsumer<String, String> none =
                Clients.consumer("auto.offset.reset", "none", "group.id", "reset-none")) {
            none.assign(List.of(first));
            Promises.fails(NoOffsetForPartitionException.class, () ->
                    none.poll(Duration.ofSeconds(20)));
            none.seek(first, 1000);
            Promises.fails(OffsetOutOfRangeException.class, () -> {
                while (none.poll(Duration.ofSeconds(20)).isEmpty()) { }
            });
        }
        try (KafkaConsumer<String, String> latest = Clients.consumer("auto.offset.reset", "latest")) {
            latest.assign(List.of(first));
            Promises.same(10L, latest.position(first));
            latest.seek(first, 1000);
            Promises.eventually("beyond the end it starts at the end", () ->
                    latest.poll(Duration.ofMillis(50)).isEmpty() && latest.position(first) == 10);
        }
        try (KafkaConsumer<String, String> hour =
                Clients.consumer("auto.offset.reset", "by_duration:PT1H")) {
            hour.assign(List.of(first));
            Promises.same(Clients.numbers(0, 10), Clients.values(Clients.poll(hour, 10)));
        }
    }

    static void largeRecord() throws Exception {
        Clients.create("large", 1);
        String large = "x".repeat(300_000);
        try (KafkaProducer<String, String> producer = Clients.producer()) {
            producer.send(new ProducerRecord<>("large", large)).get();
            producer.send(new ProducerRecord<>("large", "after")).get();
        }
        try (KafkaConsumer<String, String> consumer =
                Clients.consumer("max.partition.fetch.bytes", 1000, "fetch.max.bytes", 1000)) {
            consumer.assign(Clients.partitions("large", 1));
            Promises.same(List.of(large, "after"), Clients.values(Clients.poll(consumer, 2)));
        }
    }

    static void longPoll() throws Exception {
        Clients.create("wait", 1);
        KafkaConsumer<String, String> consumer = Clients.consumer("fetch.max.wait.ms", 25_000);
        consumer.assign(Clients.partitions("wait", 1));
        consumer.poll(Duration.ofMillis(300));
        long start = System.nanoTime();
        Clients.fill("wait", 1);
        Clients.poll(consumer, 1);
        Promises.holds(System.nanoTime() - start < 20_000_000_000L, "the wait was cut short");
        consumer.close(CloseOptions.timeout(Duration.ZERO));
    }

    static void partitionsAndTopics() throws Exception {
        Clients.create("known", 3);
        try (KafkaConsumer<String, String> consumer = Clients.consumer()) {
            Promises.same(3, consumer.partitionsFor("known").size());
            Promises.same(3, consumer.listTopics().get("known").size());
            Promises.holds(consumer.partitionsFor("known").get(0).leader() != null, "a leader");
        }
    }
}
