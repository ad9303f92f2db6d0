import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.regex.Pattern;
import org.apache.kafka.clients.consumer.CommitFailedException;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.FencedInstanceIdException;

/** Members of a group share the partitions, and go on where the group has committed. */
final class Groups {
    private static final String COOPERATIVE =
            "org.apache.kafka.clients.consumer.CooperativeStickyAssignor";

    static void promise() {
        Promises.ALL.put("members_share_partitions", Groups::sharing);
        Promises.ALL.put("cooperative_members_keep_what_stays", Groups::cooperative);
        Promises.ALL.put("static_member_comes_back", Groups::staticMember);
        Promises.ALL.put("second_holder_of_an_instance_id", Groups::fencedInstance);
        Promises.ALL.put("commit_and_go_on", Groups::commitAndGoOn);
        Promises.ALL.put("auto_commit", Groups::autoCommit);
        Promises.ALL.put("commit_of_a_past_generation", Groups::pastGeneration);
        Promises.ALL.put("subscription_by_pattern", Groups::byPattern);
        Promises.ALL.put("two_groups_read_everything", Groups::twoGroups);
    }

    private static void turn(Collection<KafkaConsumer<String, String>> members) {
        members.forEach(member -> member.poll(Duration.ofMillis(20)));
    }

    private static List<Integer> sizes(Collection<KafkaConsumer<String, String>> members) {
        return members.stream().map(member -> member.assignment().size()).sorted().toList();
    }

    private static KafkaConsumer<String, String> member(String group, Object... pairs) {
        List<Object> all = new ArrayList<>(List.of(pairs));
        all.addAll(List.of("group.id", group));
        KafkaConsumer<String, String> member = Clients.consumer(all.toArray());
        member.subscribe(List.of(group));
        return member;
    }

    static void sharing() throws Exception {
        Clients.create("sharing", 6);
        List<KafkaConsumer<String, String>> members = new ArrayList<>();
        for (List<Integer> expected : List.of(List.of(6), List.of(3, 3), List.of(2, 2, 2))) {
            members.add(member("sharing"));
            Promises.eventually("shares are " + expected, () -> {
                turn(members);
                return sizes(members).equals(expected);
            });
        }
        Set<TopicPartition> covered = new HashSet<>();
        members.forEach(member -> covered.addAll(member.assignment()));
        Promises.same(6, covered.size());
        members.remove(0).close();
        Promises.eventually("two share again", () -> {
            turn(members);
            return sizes(members).equals(List.of(3, 3));
        });
        members.forEach(KafkaConsumer::close);
    }

    static void cooperative() throws Exception {
        Clients.create("cooperative", 6);
        List<TopicPartition> revoked = new ArrayList<>();
        ConsumerRebalanceListener listener = new ConsumerRebalanceListener() {
            @Override
            public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
                revoked.addAll(partitions);
            }

            @Override
            public void onPartitionsAssigned(Collection<TopicPartition> partitions) { }
        };
        KafkaConsumer<String, String> old =
                member("cooperative", "partition.assignment.strategy", COOPERATIVE);
        old.subscribe(List.of("cooperative"), listener);
        List<KafkaConsumer<String, String>> members = new ArrayList<>(List.of(old));
        Promises.eventually("the first has all", () -> {
            turn(members);
            return sizes(members).equals(List.of(6));
        });
        members.add(member("cooperative", "partition.assignment.strategy", COOPERATIVE));
        Promises.eventually("the two share", () -> {
            turn(members);
            return sizes(members).equals(List.of(3, 3));
        });
        Promises.same(3, revoked.size());
        members.forEach(KafkaConsumer::close);
    }

    static void staticMember() throws Exception {
        Clients.create("static", 4);
        KafkaConsumer<String, String> other = member("static", "group.instance.id", "other");
        KafkaConsumer<String, String> leaver = member("static", "group.instance.id", "leaver");
        Promises.eventually("both have a share", () -> {
            turn(List.of(other, leaver));
            return other.assignment().size() == 2 && leaver.assignment().size() == 2;
        });
        Set<TopicPartition> before = leaver.assignment();
        int generation = other.groupMetadata().generationId();
        leaver.close();
        KafkaConsumer<String, String> back = member("static", "group.instance.id", "leaver");
        Promises.eventually("it is back with what it had", () -> {
            turn(List.of(other, back));
            return back.assignment().equals(before);
        });
        Promises.same(generation, other.groupMetadata().generationId());
        other.close();
        back.close();
    }

    static void fencedInstance() throws Exception {
        Clients.create("fenced", 1);
        KafkaConsumer<String, String> first = member("fenced", "group.instance.id", "one");
        Promises.eventually("the first has the partition", () -> {
            turn(List.of(first));
            return first.assignment().size() == 1;
        });
        KafkaConsumer<String, String> second = member("fenced", "group.instance.id", "one");
        Promises.eventually("the second has taken it over", () -> {
            turn(List.of(second));
            return second.assignment().size() == 1;
        });
        Promises.fails(FencedInstanceIdException.class, () ->
                Promises.eventually("the first is told", () -> {
                    turn(List.of(first, second));
                    return false;
                }));
        second.close();
        first.close();
    }

    static void commitAndGoOn() throws Exception {
        Clients.create("commit", 2);
        Clients.fill("commit", 30);
        TopicPartition first = Clients.first("commit");
        TopicPartition second = Clients.partitions("commit", 2).get(1);
        try (KafkaConsumer<String, String> consumer = member("commit", "max.poll.records", 10)) {
            Clients.poll(consumer, 10);
            consumer.commitSync();
            Promises.same(10L, consumer.committed(Set.of(first)).get(first).offset());
            consumer.commitSync(Map.of(first, new OffsetAndMetadata(12, "why")));
            Promises.same("why", consumer.committed(Set.of(first)).get(first).metadata());
            Promises.same(0L, consumer.committed(Set.of(second)).get(second).offset());
        }
        try (KafkaConsumer<String, String> consumer = member("commit")) {
            Promises.same(Clients.numbers(12, 30), Clients.values(Clients.poll(consumer, 18)));
        }
    }

    static void autoCommit() throws Exception {
        Clients.create("auto", 1);
        Clients.fill("auto", 5);
        try (KafkaConsumer<String, String> consumer = member("auto", "enable.auto.commit", true)) {
            Clients.poll(consumer, 5);
        }
        try (KafkaConsumer<String, String> consumer = member("auto")) {
            TopicPartition first = Clients.first("auto");
            Promises.same(5L, consumer.committed(Set.of(first)).get(first).offset());
        }
    }

    static void pastGeneration() throws Exception {
        Clients.create("past", 1);
        Clients.fill("past", 5);
        try (KafkaConsumer<String, String> slow = member("past", "max.poll.interval.ms", 500)) {
            Clients.poll(slow, 5);
            try (KafkaConsumer<String, String> other = member("past")) {
                Promises.eventually("the slow one is dropped", () -> {
                    turn(List.of(other));
                    return other.assignment().size() == 1;
                });
                Promises.fails(CommitFailedException.class, slow::commitSync);
                Promises.holds(
                        other.committed(other.assignment()).get(Clients.first("past")) == null,
                        "nothing was committed");
            }
        }
    }

    static void byPattern() throws Exception {
        Clients.create("pattern-a", 1);
        Clients.create("pattern-b", 2);
        try (KafkaConsumer<String, String> consumer = Clients.consumer("group.id", "pattern")) {
            consumer.subscribe(Pattern.compile("pattern-.*"));
            Promises.eventually("both topics are found", () -> {
                turn(List.of(consumer));
                return consumer.assignment().size() == 3;
            });
        }
    }

    static void twoGroups() throws Exception {
        Clients.create("two", 1);
        Clients.fill("two", 20);
        for (String group : List.of("two-a", "two-b")) {
            try (KafkaConsumer<String, String> consumer = Clients.consumer("group.id", group)) {
                consumer.subscribe(List.of("two"));
                List<ConsumerRecord<String, String>> records = Clients.poll(consumer, 20);
                Promises.same(Clients.numbers(0, 20), Clients.values(records));
                consumer.commitSync();
            }
        }
    }
}
