import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import org.apache.kafka.clients.consumer.CommitFailedException;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.InvalidProducerEpochException;
import org.apache.kafka.common.errors.ProducerFencedException;

/** A transaction is seen whole or not at all, and its owner is the last who asked for its id. */
final class Transactions {
    private static final Set<Class<? extends Throwable>> FENCED =
            Set.of(ProducerFencedException.class, InvalidProducerEpochException.class);

    static void promise() {
        Promises.ALL.put("committed_and_aborted", Transactions::committedAndAborted);
        Promises.ALL.put("open_transaction_holds_readers", Transactions::openTransaction);
        Promises.ALL.put("atomic_over_topics", Transactions::atomicOverTopics);
        Promises.ALL.put("offsets_in_a_transaction", Transactions::offsets);
        Promises.ALL.put("offsets_of_a_stranger", Transactions::offsetsOfAStranger);
        Promises.ALL.put("second_owner_fences_the_first", Transactions::fencing);
        Promises.ALL.put("timed_out_transaction_is_aborted", Transactions::timeout);
        Promises.ALL.put("empty_transaction", Transactions::empty);
        Promises.ALL.put("transactions_of_version_2", Transactions::versionTwo);
    }

    private static KafkaProducer<String, String> started(String id, Object... pairs) {
        Object[] all = new Object[pairs.length + 2];
        System.arraycopy(pairs, 0, all, 0, pairs.length);
        all[pairs.length] = "transactional.id";
        all[pairs.length + 1] = id;
        KafkaProducer<String, String> producer = Clients.producer(all);
        producer.initTransactions();
        return producer;
    }

    private static void send(KafkaProducer<String, String> producer, String topic, String value) {
        producer.send(new ProducerRecord<>(topic, 0, null, value));
    }

    static void committedAndAborted() throws Exception {
        Clients.create("tx", 1);
        try (KafkaProducer<String, String> producer = started("tx")) {
            for (int i = 0; i < 20; i++) {
                producer.beginTransaction();
                send(producer, "tx", "" + i);
                if (i % 2 == 1) {
                    producer.flush();
                    producer.abortTransaction();
                } else {
                    producer.commitTransaction();
                }
            }
        }
        List<String> committed = Clients.numbers(0, 20);
        committed.removeIf(value -> Integer.parseInt(value) % 2 == 1);
        Promises.same(committed, Clients.values("tx", "read_committed"));
        Promises.same(Clients.numbers(0, 20), Clients.values("tx", "read_uncommitted"));
    }

    static void openTransaction() throws Exception {
        Clients.create("open", 1);
        Clients.fill("open", 3);
        TopicPartition first = Clients.first("open");
        try (KafkaProducer<String, String> producer = started("open");
                KafkaConsumer<String, String> committed =
                        Clients.consumer("isolation.level", "read_committed");
                KafkaConsumer<String, String> all = Clients.consumer()) {
            producer.beginTransaction();
            send(producer, "open", "3");
            producer.flush();
            Clients.fill("open", 1);
            Promises.same(3L, committed.endOffsets(List.of(first)).get(first));
            Promises.same(5L, all.endOffsets(List.of(first)).get(first));
            committed.assign(List.of(first));
            Clients.poll(committed, 3);
            Promises.holds(committed.poll(Duration.ofMillis(100)).isEmpty(), "the rest waits");
            producer.commitTransaction();
            Promises.same(List.of("3", "0"), Clients.values(Clients.poll(committed, 2)));
            Promises.same(6L, committed.endOffsets(List.of(first)).get(first));
        }
    }

    static void atomicOverTopics() throws Exception {
        Clients.create("atomic-a", 1);
        Clients.create("atomic-b", 1);
        try (KafkaProducer<String, String> producer = started("atomic")) {
            for (String value : List.of("aborted", "committed")) {
                producer.beginTransaction();
                send(producer, "atomic-a", value);
                send(producer, "atomic-b", value);
                producer.flush();
                if (value.equals("aborted")) {
                    producer.abortTransaction();
                } else {
                    producer.commitTransaction();
                }
            }
        }
        for (String topic : List.of("atomic-a", "atomic-b")) {
            Promises.same(List.of("committed"), Clients.values(topic, "read_committed"));
        }
    }

    static void offsets() throws Exception {
        Clients.create("source", 1);
        Clients.create("sink", 1);
        Clients.fill("source", 20);
        TopicPartition first = Clients.first("source");
        try (KafkaProducer<String, String> producer = started("copier");
                KafkaConsumer<String, String> consumer =
                        Clients.consumer("group.id", "copier", "max.poll.records", 10)) {
            consumer.subscribe(List.of("source"));
            for (boolean kept : new boolean[] {true, false}) {
                List<String> values = Clients.values(Clients.poll(consumer, 10));
                producer.beginTransaction();
                values.forEach(value -> send(producer, "sink", value));
                long next = consumer.position(first);
                producer.sendOffsetsToTransaction(
                        Map.of(first, new OffsetAndMetadata(next)), consumer.groupMetadata());
                if (kept) {
                    producer.commitTransaction();
                } else {
                    producer.abortTransaction();
                }
            }
            Promises.same(10L, consumer.committed(Set.of(first)).get(first).offset());
        }
        Promises.same(Clients.numbers(0, 10), Clients.values("sink", "read_committed"));
    }

    static void offsetsOfAStranger() throws Exception {
        Clients.create("stranger", 1);
        Clients.fill("stranger", 1);
        TopicPartition first = Clients.first("stranger");
        try (KafkaProducer<String, String> producer = started("stranger");
                KafkaConsumer<String, String> consumer = Clients.consumer("group.id", "stranger")) {
            consumer.subscribe(List.of("stranger"));
            Clients.poll(consumer, 1);
            ConsumerGroupMetadata present = consumer.groupMetadata();
            @SuppressWarnings("removal")
            ConsumerGroupMetadata past = new ConsumerGroupMetadata(
                    "stranger", present.generationId() + 7, present.memberId(), Optional.empty());
            producer.beginTransaction();
            Promises.fails(CommitFailedException.class, () -> {
                producer.sendOffsetsToTransaction(Map.of(first, new OffsetAndMetadata(1)), past);
                producer.commitTransaction();
            });
            producer.abortTransaction();
            Promises.holds(consumer.committed(Set.of(first)).get(first) == null, "nothing is kept");
        }
    }

    static void fencing() throws Exception {
        Clients.create("fencing", 1);
        try (KafkaProducer<String, String> old = started("fencing")) {
            old.beginTransaction();
            send(old, "fencing", "old");
            old.flush();
            try (KafkaProducer<String, String> owner = started("fencing")) {
                owner.beginTransaction();
                send(owner, "fencing", "new");
                Promises.fails(FENCED, () -> {
                    send(old, "fencing", "late");
                    old.commitTransaction();
                });
                owner.commitTransaction();
            }
        }
        Promises.same(List.of("new"), Clients.values("fencing", "read_committed"));
        Promises.same(List.of("old", "new"), Clients.values("fencing", "read_uncommitted"));
    }

    static void timeout() throws Exception {
        Clients.create("timeout", 1);
        TopicPartition first = Clients.first("timeout");
        try (KafkaProducer<String, String> producer =
                        started("timeout", "transaction.timeout.ms", 1000);
                KafkaConsumer<String, String> committed =
                        Clients.consumer("isolation.level", "read_committed")) {
            producer.beginTransaction();
            send(producer, "timeout", "late");
            producer.flush();
            Promises.eventually("the transaction is aborted for it", () ->
                    committed.endOffsets(List.of(first)).get(first) == 2L);
            Promises.fails(KafkaException.class, producer::commitTransaction);
        }
        Promises.same(List.of(), Clients.values("timeout", "read_committed"));
    }

    static void empty() throws Exception {
        Clients.create("empty", 1);
        try (KafkaProducer<String, String> producer = started("empty")) {
            producer.beginTransaction();
            producer.commitTransaction();
            producer.beginTransaction();
            producer.abortTransaction();
            producer.beginTransaction();
            send(producer, "empty", "one");
            producer.commitTransaction();
        }
        Promises.same(List.of("one"), Clients.values("empty", "read_committed"));
    }

    /** Whoever runs this reads the producer's epochs from the files. */
    static void versionTwo() throws Exception {
        Clients.create("epochs", 1);
        try (KafkaProducer<String, String> producer = started("epochs")) {
            for (int i = 0; i < 3; i++) {
                producer.beginTransaction();
                send(producer, "epochs", "" + i);
                producer.commitTransaction();
            }
        }
        Promises.same(Clients.numbers(0, 3), Clients.values("epochs", "read_committed"));
    }
}
