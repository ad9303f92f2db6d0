import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Future;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.errors.InvalidTimestampException;
import org.apache.kafka.common.errors.InvalidTopicException;
import org.apache.kafka.common.errors.RecordTooLargeException;
import org.apache.kafka.common.record.TimestampType;

/** What is produced comes back as it was sent, and what is refused is refused in Kafka's words. */
final class Producing {
    static void promise() {
        for (String codec : List.of("none", "gzip", "snappy", "lz4", "zstd")) {
            Promises.ALL.put("codec_" + codec, () -> comesBack(codec));
        }
        Promises.ALL.put("keyed_order", Producing::keyedOrder);
        Promises.ALL.put("many_batches_in_flight", Producing::manyBatchesInFlight);
        Promises.ALL.put("nulls_and_empties", Producing::nullsAndEmpties);
        Promises.ALL.put("acks_0_and_1", Producing::weakAcks);
        Promises.ALL.put("oversize_record", Producing::oversizeRecord);
        Promises.ALL.put("oversize_batch_is_split", Producing::oversizeBatchIsSplit);
        Promises.ALL.put("auto_created_topic", Producing::autoCreatedTopic);
        Promises.ALL.put("illegal_topic", Producing::illegalTopic);
        Promises.ALL.put("log_append_time", Producing::logAppendTime);
        Promises.ALL.put("timestamp_out_of_range", Producing::timestampOutOfRange);
        Promises.ALL.put("topic_created_anew", Producing::topicCreatedAnew);
    }

    static void comesBack(String codec) throws Exception {
        String topic = "codec-" + codec;
        Clients.create(topic, 1);
        long now = System.currentTimeMillis() - 10_000;
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        try (KafkaProducer<String, String> producer = Clients.producer("compression.type", codec)) {
            for (int i = 0; i < 500; i++) {
                String value = "value ".repeat(i % 20) + i;
                ProducerRecord<String, String> record =
                        new ProducerRecord<>(topic, 0, now + i, "k" + i, value);
                record.headers().add("h", Clients.bytes("h" + i)).add("h", null);
                sent.add(producer.send(record));
            }
            producer.flush();
            for (int i = 0; i < 500; i++) {
                Promises.same((long) i, sent.get(i).get().offset());
                Promises.same(now + i, sent.get(i).get().timestamp());
            }
        }
        int i = 0;
        for (ConsumerRecord<String, String> record :
                Clients.read(Clients.partitions(topic, 1), "read_committed")) {
            Promises.same((long) i, record.offset());
            Promises.same(now + i, record.timestamp());
            Promises.same(TimestampType.CREATE_TIME, record.timestampType());
            Promises.same("k" + i, record.key());
            Promises.same("value ".repeat(i % 20) + i, record.value());
            Promises.same(2, record.headers().toArray().length);
            Promises.same("h" + i, new String(record.headers().toArray()[0].value()));
            Promises.holds(record.headers().toArray()[1].value() == null, "a null header is null");
            Promises.holds(record.leaderEpoch().isPresent(), "the leader's epoch is known");
            i++;
        }
        Promises.same(500, i);
    }

    static void keyedOrder() throws Exception {
        Clients.create("keyed", 3);
        try (KafkaProducer<String, String> producer = Clients.producer("batch.size", 500)) {
            for (int i = 0; i < 2000; i++) {
                producer.send(new ProducerRecord<>("keyed", "k" + i % 40, "" + i / 40));
            }
        }
        Map<String, Integer> homes = new HashMap<>();
        Map<String, Integer> next = new HashMap<>();
        List<ConsumerRecord<String, String>> records =
                Clients.read(Clients.partitions("keyed", 3), "read_uncommitted");
        for (ConsumerRecord<String, String> record : records) {
            homes.putIfAbsent(record.key(), record.partition());
            Promises.same(homes.get(record.key()), record.partition());
            Promises.same(next.getOrDefault(record.key(), 0), Integer.valueOf(record.value()));
            next.merge(record.key(), 1, Integer::sum);
        }
        Promises.same(2000, records.size());
        Promises.same(3L, homes.values().stream().distinct().count());
    }

    static void manyBatchesInFlight() throws Exception {
        Clients.create("in-flight", 1);
        try (KafkaProducer<String, String> producer =
                Clients.producer("batch.size", 200, "linger.ms", 0)) {
            for (int i = 0; i < 5000; i++) {
                producer.send(new ProducerRecord<>("in-flight", "" + i));
            }
        }
        Promises.same(Clients.numbers(0, 5000), Clients.values("in-flight", "read_uncommitted"));
    }

    static void nullsAndEmpties() throws Exception {
        Clients.create("nulls", 1);
        try (KafkaProducer<String, String> producer = Clients.producer()) {
            producer.send(new ProducerRecord<>("nulls", null, null));
            producer.send(new ProducerRecord<>("nulls", "", ""));
        }
        List<ConsumerRecord<String, String>> records =
                Clients.read(Clients.partitions("nulls", 1), "read_uncommitted");
        Promises.holds(records.get(0).key() == null && records.get(0).value() == null, "null");
        Promises.same("", records.get(1).key());
        Promises.same("", records.get(1).value());
    }

    static void weakAcks() throws Exception {
        Clients.create("weak", 1);
        for (String acks : List.of("0", "1")) {
            try (KafkaProducer<String, String> producer =
                    Clients.producer("acks", acks, "enable.idempotence", false)) {
                for (int i = 0; i < 100; i++) {
                    producer.send(new ProducerRecord<>("weak", acks + "-" + i)).get();
                }
            }
            String last = acks + "-99";
            Promises.eventually("acks=" + acks + " is readable", () ->
                    Clients.values("weak", "read_uncommitted").contains(last));
        }
        Promises.same(200, Clients.values("weak", "read_uncommitted").size());
    }

    static void oversizeRecord() throws Exception {
        Clients.create("small", 1, "max.message.bytes", "2000");
        try (KafkaProducer<String, String> producer = Clients.producer()) {
            Promises.fails(RecordTooLargeException.class, () ->
                    producer.send(new ProducerRecord<>("small", "x".repeat(3000))).get());
            producer.send(new ProducerRecord<>("small", "fits")).get();
        }
        Promises.same(List.of("fits"), Clients.values("small", "read_uncommitted"));
    }

    static void oversizeBatchIsSplit() throws Exception {
        Clients.create("split", 1, "max.message.bytes", "2000");
        try (KafkaProducer<String, String> producer = Clients.producer("linger.ms", 50)) {
            for (int i = 0; i < 100; i++) {
                producer.send(new ProducerRecord<>("split", i + "x".repeat(100)));
            }
        }
        List<String> values = Clients.values("split", "read_uncommitted");
        Promises.same(100, values.size());
        for (int i = 0; i < 100; i++) {
            Promises.same(i + "x".repeat(100), values.get(i));
        }
    }

    static void autoCreatedTopic() throws Exception {
        try (KafkaProducer<String, String> producer = Clients.producer()) {
            producer.send(new ProducerRecord<>("created-by-use", "first")).get();
        }
        Promises.same(List.of("first"), Clients.values("created-by-use", "read_uncommitted"));
    }

    static void illegalTopic() {
        try (KafkaProducer<String, String> producer = Clients.producer()) {
            Promises.fails(InvalidTopicException.class, () ->
                    producer.send(new ProducerRecord<>("../x", "never")).get());
        }
    }

    static void logAppendTime() throws Exception {
        Clients.create("append-time", 1, "message.timestamp.type", "LogAppendTime");
        long before = System.currentTimeMillis();
        try (KafkaProducer<String, String> producer = Clients.producer()) {
            RecordMetadata sent =
                    producer.send(new ProducerRecord<>("append-time", 0, 5L, "k", "v")).get();
            Promises.holds(sent.timestamp() >= before, "the broker's time is answered");
            ConsumerRecord<String, String> found =
                    Clients.read(Clients.partitions("append-time", 1), "read_uncommitted").get(0);
            Promises.same(sent.timestamp(), found.timestamp());
            Promises.same(TimestampType.LOG_APPEND_TIME, found.timestampType());
        }
    }

    static void timestampOutOfRange() throws Exception {
        Clients.create("in-time", 1, "message.timestamp.before.max.ms", "60000");
        try (KafkaProducer<String, String> producer = Clients.producer()) {
            Promises.fails(InvalidTimestampException.class, () ->
                    producer.send(new ProducerRecord<>("in-time", 0, 5L, "k", "v")).get());
        }
    }

    /** The producer holds on to the old topic's identity until the broker tells it otherwise. */
    static void topicCreatedAnew() throws Exception {
        Clients.create("anew", 1);
        try (KafkaProducer<String, String> producer = Clients.producer();
                Admin admin = Clients.admin()) {
            producer.send(new ProducerRecord<>("anew", "old")).get();
            admin.deleteTopics(List.of("anew")).all().get();
            Clients.create("anew", 1);
            Promises.same(0L, producer.send(new ProducerRecord<>("anew", "new")).get().offset());
        }
        Promises.same(List.of("new"), Clients.values("anew", "read_uncommitted"));
    }
}
