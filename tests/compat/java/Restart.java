import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;

/** Clients live through a killed broker; whoever runs this kills it on the line that asks for it. */
final class Restart {
    static Map<String, Promises.Promise> promises() {
        Map<String, Promises.Promise> promises = new LinkedHashMap<>();
        promises.put("killed_while_producing", Restart::whileProducing);
        promises.put("killed_while_in_transactions", Restart::whileInTransactions);
        return promises;
    }

    private static void askForTheKill() {
        System.out.println("kill the broker and start it again");
        System.out.flush();
    }

    static void whileProducing() throws Exception {
        Clients.create("killed", 3);
        int total = 30_000;
        try (KafkaProducer<String, String> producer =
                Clients.producer("reconnect.backoff.max.ms", 200, "batch.size", 2000);
                KafkaConsumer<String, String> consumer =
                        Clients.consumer("group.id", "killed", "reconnect.backoff.max.ms", 200)) {
            consumer.subscribe(List.of("killed"));
            for (int i = 0; i < total; i++) {
                producer.send(new ProducerRecord<>("killed", i % 3, null, "" + i));
                if (i == total / 3) {
                    askForTheKill();
                }
                if (i % 100 == 0) {
                    Thread.sleep(5);
                }
            }
            producer.flush();
            int read = Clients.poll(consumer, total).size();
            consumer.commitSync();
            Promises.same(total, read);
        }
        int[] next = {0, 1, 2};
        for (ConsumerRecord<String, String> record :
                Clients.read(Clients.partitions("killed", 3), "read_uncommitted")) {
            Promises.same(next[record.partition()], Integer.valueOf(record.value()));
            next[record.partition()] += 3;
        }
    }

    static void whileInTransactions() throws Exception {
        Clients.create("killed-in-tx", 2);
        TopicPartition second = new TopicPartition("killed-in-tx", 1);
        try (KafkaProducer<String, String> producer = Clients.producer(
                "transactional.id", "killed-in-tx", "reconnect.backoff.max.ms", 200)) {
            producer.initTransactions();
            for (int transaction = 0; transaction < 60; transaction++) {
                producer.beginTransaction();
                for (int i = 0; i < 10; i++) {
                    String value = "" + (transaction * 10 + i);
                    producer.send(new ProducerRecord<>("killed-in-tx", 0, null, value));
                    producer.send(new ProducerRecord<>("killed-in-tx", 1, null, value));
                }
                if (transaction == 20) {
                    askForTheKill();
                }
                Thread.sleep(20);
                if (transaction % 3 == 2) {
                    producer.abortTransaction();
                } else {
                    producer.commitTransaction();
                }
            }
        }
        List<String> expected = Clients.numbers(0, 600);
        expected.removeIf(value -> Integer.parseInt(value) / 10 % 3 == 2);
        Promises.same(expected, Clients.values("killed-in-tx", "read_committed"));
        Promises.same(expected, Clients.values(Clients.read(List.of(second), "read_committed")));
    }
}
