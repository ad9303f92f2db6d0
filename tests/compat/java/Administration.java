import java.time.Duration;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.ConsumerGroupDescription;
import org.apache.kafka.clients.admin.CreateTopicsResult;
import org.apache.kafka.clients.admin.ListOffsetsResult.ListOffsetsResultInfo;
import org.apache.kafka.clients.admin.LogDirDescription;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.GroupState;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicCollection;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.GroupIdNotFoundException;
import org.apache.kafka.common.errors.GroupNotEmptyException;
import org.apache.kafka.common.errors.GroupSubscribedToTopicException;
import org.apache.kafka.common.errors.InvalidConfigurationException;
import org.apache.kafka.common.errors.InvalidPartitionsException;
import org.apache.kafka.common.errors.OffsetOutOfRangeException;
import org.apache.kafka.common.errors.PolicyViolationException;
import org.apache.kafka.common.errors.TopicExistsException;
import org.apache.kafka.common.errors.UnknownMemberIdException;
import org.apache.kafka.common.errors.UnknownTopicOrPartitionException;

/** The administrator's client finds, makes, changes and removes what it asks for. */
final class Administration {
    static void promise() {
        Promises.ALL.put("topics_come_and_go", () -> with(Administration::topics));
        Promises.ALL.put("configs", () -> with(Administration::configs));
        Promises.ALL.put("cluster", () -> with(Administration::cluster));
        Promises.ALL.put("features", () -> with(Administration::features));
        Promises.ALL.put("groups_described_and_deleted", () -> with(Administration::groups));
        Promises.ALL.put("group_offsets", () -> with(Administration::groupOffsets));
        Promises.ALL.put("delete_records", () -> with(Administration::deleteRecords));
        Promises.ALL.put("list_offsets", () -> with(Administration::listOffsets));
        Promises.ALL.put("log_dirs", () -> with(Administration::logDirs));
        Promises.ALL.put("more_partitions", () -> with(Administration::morePartitions));
        Promises.ALL.put("fenced_by_the_administrator", () -> with(Administration::fence));
    }

    interface Act {
        void on(Admin admin) throws Exception;
    }

    private static void with(Act act) throws Exception {
        try (Admin admin = Clients.admin()) {
            act.on(admin);
        }
    }

    static void topics(Admin admin) throws Exception {
        CreateTopicsResult created = admin.createTopics(List.of(
                new NewTopic("made", 3, (short) 1).configs(Map.of("retention.ms", "1000000"))));
        Promises.same(3, created.numPartitions("made").get());
        Promises.same("1000000", created.config("made").get().get("retention.ms").value());
        Promises.fails(TopicExistsException.class, () ->
                admin.createTopics(List.of(new NewTopic("made", 1, (short) 1))).all().get());
        Promises.holds(admin.listTopics().names().get().contains("made"), "it is listed");
        TopicDescription found =
                admin.describeTopics(List.of("made")).allTopicNames().get().get("made");
        Promises.same(3, found.partitions().size());
        Promises.same(created.topicId("made").get(), found.topicId());
        Uuid id = found.topicId();
        Promises.same("made", admin.describeTopics(TopicCollection.ofTopicIds(List.of(id)))
                .allTopicIds().get().get(id).name());
        admin.deleteTopics(List.of("made")).all().get();
        Promises.fails(UnknownTopicOrPartitionException.class, () ->
                admin.describeTopics(List.of("made")).allTopicNames().get());
        Promises.fails(UnknownTopicOrPartitionException.class, () ->
                admin.deleteTopics(List.of("made")).all().get());
    }

    static void configs(Admin admin) throws Exception {
        Clients.create("configured", 1);
        ConfigResource topic = new ConfigResource(ConfigResource.Type.TOPIC, "configured");
        ConfigEntry before = config(admin, topic, "retention.ms");
        Promises.holds(before.isDefault(), "nothing is set yet");
        change(admin, topic, "retention.ms", "77000", AlterConfigOp.OpType.SET);
        Promises.same("77000", config(admin, topic, "retention.ms").value());
        Promises.same(ConfigEntry.ConfigSource.DYNAMIC_TOPIC_CONFIG,
                config(admin, topic, "retention.ms").source());
        change(admin, topic, "cleanup.policy", "compact", AlterConfigOp.OpType.APPEND);
        Promises.same(Set.of("compact", "delete"),
                Set.of(config(admin, topic, "cleanup.policy").value().split(",")));
        change(admin, topic, "retention.ms", "", AlterConfigOp.OpType.DELETE);
        Promises.same(before.value(), config(admin, topic, "retention.ms").value());
        Promises.fails(InvalidConfigurationException.class, () ->
                change(admin, topic, "retention.ms", "soon", AlterConfigOp.OpType.SET));
        String node = admin.describeCluster().nodes().get().iterator().next().idString();
        ConfigResource broker = new ConfigResource(ConfigResource.Type.BROKER, node);
        Promises.holds(admin.describeConfigs(List.of(broker)).all().get().get(broker)
                .entries().size() > 10, "the broker describes itself");
    }

    private static ConfigEntry config(Admin admin, ConfigResource resource, String name)
            throws Exception {
        return admin.describeConfigs(List.of(resource)).all().get().get(resource).get(name);
    }

    private static void change(Admin admin, ConfigResource resource, String name, String value,
            AlterConfigOp.OpType operation) throws Exception {
        AlterConfigOp change = new AlterConfigOp(new ConfigEntry(name, value), operation);
        admin.incrementalAlterConfigs(Map.of(resource, List.of(change))).all().get();
    }

    static void cluster(Admin admin) throws Exception {
        Promises.same(1, admin.describeCluster().nodes().get().size());
        Promises.holds(admin.describeCluster().controller().get() != null, "a controller");
        Promises.same(22, admin.describeCluster().clusterId().get().length());
    }

    static void features(Admin admin) throws Exception {
        var features = admin.describeFeatures().featureMetadata().get();
        Promises.same((short) 2,
                features.finalizedFeatures().get("transaction.version").maxVersionLevel());
    }

    static void groups(Admin admin) throws Exception {
        Clients.create("described", 2);
        try (KafkaConsumer<String, String> consumer = Clients.consumer(
                "group.id", "described", "client.id", "reader")) {
            consumer.subscribe(List.of("described"));
            Promises.eventually("it is a member", () -> {
                consumer.poll(Duration.ofMillis(20));
                return consumer.assignment().size() == 2;
            });
            ConsumerGroupDescription found = described(admin);
            Promises.same(GroupState.STABLE, found.groupState());
            Promises.same(1, found.members().size());
            Promises.same("range", found.partitionAssignor());
            var member = found.members().iterator().next();
            Promises.same(consumer.assignment(), member.assignment().topicPartitions());
            Promises.same("reader", member.clientId());
            consumer.commitSync();
            Promises.fails(GroupNotEmptyException.class, () ->
                    admin.deleteConsumerGroups(List.of("described")).all().get());
            Promises.fails(GroupSubscribedToTopicException.class, () ->
                    admin.deleteConsumerGroupOffsets(
                            "described", Set.of(Clients.first("described"))).all().get());
        }
        Promises.same(GroupState.EMPTY, described(admin).groupState());
        Promises.holds(ids(admin).contains("described"), "it is listed");
        admin.deleteConsumerGroups(List.of("described")).all().get();
        Promises.holds(!ids(admin).contains("described"), "it is gone");
        Promises.fails(GroupIdNotFoundException.class, () ->
                admin.deleteConsumerGroups(List.of("described")).all().get());
        Promises.fails(GroupIdNotFoundException.class, () -> described(admin));
    }

    private static ConsumerGroupDescription described(Admin admin) throws Exception {
        return admin.describeConsumerGroups(List.of("described")).all().get().get("described");
    }

    private static Collection<String> ids(Admin admin) throws Exception {
        return admin.listGroups().all().get().stream()
                .map(group -> group.groupId()).collect(Collectors.toSet());
    }

    static void groupOffsets(Admin admin) throws Exception {
        Clients.create("moved", 1);
        Clients.fill("moved", 10);
        TopicPartition first = Clients.first("moved");
        Map<TopicPartition, OffsetAndMetadata> wanted = Map.of(first, new OffsetAndMetadata(4));
        admin.alterConsumerGroupOffsets("moved", wanted).all().get();
        Promises.same(4L, admin.listConsumerGroupOffsets("moved")
                .partitionsToOffsetAndMetadata().get().get(first).offset());
        try (KafkaConsumer<String, String> consumer = Clients.consumer("group.id", "moved")) {
            consumer.subscribe(List.of("moved"));
            Promises.same(Clients.numbers(4, 10), Clients.values(Clients.poll(consumer, 6)));
            Promises.fails(UnknownMemberIdException.class, () ->
                    admin.alterConsumerGroupOffsets("moved", wanted).all().get());
        }
        admin.deleteConsumerGroupOffsets("moved", Set.of(first)).all().get();
        Promises.same(Map.of(), admin.listConsumerGroupOffsets("moved")
                .partitionsToOffsetAndMetadata().get());
    }

    static void deleteRecords(Admin admin) throws Exception {
        Clients.create("trimmed", 1);
        Clients.fill("trimmed", 10);
        TopicPartition first = Clients.first("trimmed");
        Promises.same(6L, admin.deleteRecords(Map.of(first, RecordsToDelete.beforeOffset(6)))
                .lowWatermarks().get(first).get().lowWatermark());
        Promises.same(Clients.numbers(6, 10), Clients.values("trimmed", "read_uncommitted"));
        Promises.fails(OffsetOutOfRangeException.class, () ->
                admin.deleteRecords(Map.of(first, RecordsToDelete.beforeOffset(11))).all().get());
        admin.deleteRecords(Map.of(first, RecordsToDelete.beforeOffset(-1))).all().get();
        Promises.same(List.of(), Clients.values("trimmed", "read_uncommitted"));
        Clients.create("trimmed-compacted", 1, "cleanup.policy", "compact");
        Promises.fails(PolicyViolationException.class, () -> admin.deleteRecords(Map.of(
                Clients.first("trimmed-compacted"), RecordsToDelete.beforeOffset(0))).all().get());
    }

    static void listOffsets(Admin admin) throws Exception {
        Clients.create("listed", 1);
        long now = System.currentTimeMillis() - 5_000;
        try (KafkaProducer<String, String> producer = Clients.producer()) {
            for (long shift : List.of(0L, 300L, 100L)) {
                producer.send(new ProducerRecord<>("listed", 0, now + shift, "k", "v")).get();
            }
        }
        Promises.same(0L, offset(admin, OffsetSpec.earliest()).offset());
        Promises.same(3L, offset(admin, OffsetSpec.latest()).offset());
        Promises.same(1L, offset(admin, OffsetSpec.maxTimestamp()).offset());
        Promises.same(now + 300, offset(admin, OffsetSpec.maxTimestamp()).timestamp());
        Promises.same(1L, offset(admin, OffsetSpec.forTimestamp(now + 50)).offset());
        Promises.same(0L, offset(admin, OffsetSpec.earliestLocal()).offset());
        Promises.same(-1L, offset(admin, OffsetSpec.latestTiered()).offset());
    }

    private static ListOffsetsResultInfo offset(Admin admin, OffsetSpec spec) throws Exception {
        TopicPartition first = Clients.first("listed");
        return admin.listOffsets(Map.of(first, spec)).partitionResult(first).get();
    }

    static void logDirs(Admin admin) throws Exception {
        Clients.create("sized", 1);
        Clients.fill("sized", 100);
        int node = admin.describeCluster().nodes().get().iterator().next().id();
        Map<String, LogDirDescription> directories =
                admin.describeLogDirs(List.of(node)).allDescriptions().get().get(node);
        Promises.same(1, directories.size());
        LogDirDescription only = directories.values().iterator().next();
        Promises.holds(only.replicaInfos().get(Clients.first("sized")).size() > 500, "a size");
    }

    static void morePartitions(Admin admin) throws Exception {
        Clients.create("grown", 1);
        admin.createPartitions(Map.of("grown", NewPartitions.increaseTo(4))).all().get();
        Promises.same(4, admin.describeTopics(List.of("grown"))
                .allTopicNames().get().get("grown").partitions().size());
        Promises.fails(InvalidPartitionsException.class, () -> admin.createPartitions(
                Map.of("grown", NewPartitions.increaseTo(2))).all().get());
        Clients.create("grown-compacted", 1, "cleanup.policy", "compact");
        Promises.fails(PolicyViolationException.class, () -> admin.createPartitions(
                Map.of("grown-compacted", NewPartitions.increaseTo(2))).all().get());
    }

    static void fence(Admin admin) throws Exception {
        Clients.create("ousted", 1);
        try (KafkaProducer<String, String> producer =
                Clients.producer("transactional.id", "ousted")) {
            producer.initTransactions();
            producer.beginTransaction();
            producer.send(new ProducerRecord<>("ousted", "never")).get();
            admin.fenceProducers(List.of("ousted")).all().get();
            Promises.fails(KafkaException.class, producer::commitTransaction);
        }
        Promises.same(List.of(), Clients.values("ousted", "read_committed"));
    }
}
