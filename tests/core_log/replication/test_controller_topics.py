"""The controller lets exactly those topics exist that Kafka would, and says why not."""

from uuid import UUID

import pytest

from headwater.core_log.protocol.error_codes import ErrorCode
from headwater.core_log.replication.decisions import (
    MorePartitions,
    NewTopic,
    RequestRefusal,
    TopicReference,
)
from headwater.core_log.replication.metadata import OFFSETS_TOPIC, Topic
from tests.core_log.replication.controller_in_memory import Scene


@pytest.mark.parametrize(
    "name", ["", ".", "..", "a" * 250, "../x", "a/b", "a\0", "a b", "ä", "a\n", "a:b"]
)
def test_a_name_that_is_no_file_name_is_refused(name: str) -> None:
    refused = Scene().refused(NewTopic(name))

    assert refused.code is ErrorCode.INVALID_TOPIC_EXCEPTION


@pytest.mark.parametrize("name", ["a", "A.b_c-9", "...", "a" * 249, "__mine"])
def test_a_legal_name_is_taken(name: str) -> None:
    topic = Scene().create(name)

    assert topic.name == name


def test_names_that_differ_only_in_dot_and_underscore_collide() -> None:
    scene = Scene()
    scene.create("a.b_c")

    refused = scene.refused(NewTopic("a_b.c"))

    assert refused.code is ErrorCode.INVALID_TOPIC_EXCEPTION
    assert "a.b_c" in str(refused.message)


def test_names_that_collide_within_one_request_collide_too() -> None:
    outcome = Scene().controller.create_topics([NewTopic("a.b"), NewTopic("a_b")]).answer

    assert isinstance(outcome["a.b"], Topic)
    assert isinstance(outcome["a_b"], RequestRefusal)


def test_a_topic_exists_once() -> None:
    scene = Scene()
    scene.create("t")

    assert scene.refused(NewTopic("t")).code is ErrorCode.TOPIC_ALREADY_EXISTS


def test_the_metadata_topic_cannot_be_created() -> None:
    assert Scene().refused(NewTopic("__cluster_metadata")).code is ErrorCode.INVALID_REQUEST


def test_a_name_said_twice_is_refused_and_the_others_are_created() -> None:
    scene = Scene()

    outcome = scene.commit(
        scene.controller.create_topics([NewTopic("twice"), NewTopic("once"), NewTopic("twice")])
    )

    assert list(scene.image.topics) == ["once"]
    assert outcome["twice"] == RequestRefusal(ErrorCode.INVALID_REQUEST, "Duplicate topic name")


@pytest.mark.parametrize(
    ("wanted", "code"),
    [
        (NewTopic("t", 0), ErrorCode.INVALID_PARTITIONS),
        (NewTopic("t", -2), ErrorCode.INVALID_PARTITIONS),
        (NewTopic("t", 1, 0), ErrorCode.INVALID_REPLICATION_FACTOR),
        (NewTopic("t", 1, -2), ErrorCode.INVALID_REPLICATION_FACTOR),
        (NewTopic("t", 1, 2), ErrorCode.INVALID_REPLICATION_FACTOR),
        (NewTopic("t", 10_001), ErrorCode.POLICY_VIOLATION),
        (NewTopic("t", 1, 1, ((0, (1,)),)), ErrorCode.INVALID_REQUEST),
        (NewTopic("t", -1, 1, ((0, (1,)),)), ErrorCode.INVALID_REQUEST),
        (NewTopic("t", assignments=((1, (1,)),)), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (NewTopic("t", assignments=((0, (1,)), (0, (1,)))), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (NewTopic("t", assignments=((0, ()),)), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (NewTopic("t", assignments=((0, (7,)),)), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (NewTopic("t", assignments=((0, (1, 1)),)), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (NewTopic("t", config={"no.such": "1"}), ErrorCode.INVALID_CONFIG),
        (NewTopic("t", config={"retention.ms": None}), ErrorCode.INVALID_CONFIG),
        (NewTopic("t", config={"retention.ms": "soon"}), ErrorCode.INVALID_CONFIG),
    ],
)
def test_a_topic_that_cannot_be_as_asked_is_refused(wanted: NewTopic, code: ErrorCode) -> None:
    assert Scene().refused(wanted).code is code


def test_too_many_partitions_in_one_request_refuse_all_of_it() -> None:
    wanted = [NewTopic("a", 6_000), NewTopic("b", 6_000)]

    decision = Scene().controller.create_topics(wanted)

    assert not decision.records
    assert {each.code for each in decision.answer.values() if isinstance(each, RequestRefusal)} == {
        ErrorCode.POLICY_VIOLATION
    }


def test_defaults_stand_in_for_what_is_not_said() -> None:
    scene = Scene()

    scene.commit(scene.controller.create_topics([NewTopic("t")]))

    assert len(scene.topic("t").partitions) == 2
    assert scene.partition("t").replicas == (1,)


def test_a_new_topic_begins_in_epoch_zero_with_everybody_in_sync() -> None:
    scene = Scene(brokers=3)

    topic = scene.create("t", partitions=3, factor=2)

    assert [each.replicas for each in topic.partitions.values()] == [(1, 2), (2, 3), (3, 1)]
    for each in topic.partitions.values():
        assert (each.leader, each.in_sync) == (each.replicas[0], each.replicas)
        assert (each.leader_epoch, each.partition_epoch) == (0, 0)
    assert scene.changes.topics_created == {topic.topic_id: topic}
    assert len(scene.changes.partitions_added) == 3


def test_replicas_can_be_assigned_by_hand() -> None:
    scene = Scene(brokers=3)
    wanted = NewTopic("t", assignments=((1, (3, 1)), (0, (2, 3))))

    scene.commit(scene.controller.create_topics([wanted]))

    assert scene.partition("t", 0).replicas == (2, 3)
    assert scene.partition("t", 1).leader == 3


def test_a_fenced_broker_leads_no_new_partitions() -> None:
    scene = Scene(brokers=2)
    scene.commit(scene.controller.fence_broker(2))

    scene.create("t", partitions=2)
    by_hand = NewTopic("by-hand", assignments=((0, (2, 1)),))
    scene.commit(scene.controller.create_topics([by_hand]))

    assert {each.leader for each in scene.topic("t").partitions.values()} == {1}
    assert scene.partition("by-hand").in_sync == (1,)
    assert scene.refused(NewTopic("u", 1, 3)).code is ErrorCode.INVALID_REPLICATION_FACTOR


def test_a_topic_has_the_replicas_that_are_asked_for_while_a_broker_is_away() -> None:
    scene = Scene(brokers=3)
    scene.commit(scene.controller.fence_broker(2))

    scene.create("t", partitions=2, factor=3)
    more = MorePartitions("t", 3)
    outcome = scene.commit(scene.controller.create_partitions([more]))

    assert outcome == {"t": None}
    partitions = scene.topic("t").partitions.values()
    assert [sorted(each.replicas) for each in partitions] == [[1, 2, 3]] * 3
    assert all(each.leader != 2 and 2 not in each.in_sync for each in partitions)


def test_no_topic_is_created_while_every_broker_is_fenced() -> None:
    scene = Scene(brokers=1)
    scene.commit(scene.controller.fence_broker(1))

    assert scene.refused(NewTopic("t")).code is ErrorCode.INVALID_REPLICATION_FACTOR


def test_internal_topics_are_compacted_and_have_their_own_width() -> None:
    scene = Scene()

    scene.commit(scene.controller.create_topics([scene.controller.topic_on_demand(OFFSETS_TOPIC)]))

    topic = scene.topic(OFFSETS_TOPIC)
    assert topic.is_internal and len(topic.partitions) == 4
    assert scene.configs.is_compacted(topic.config)
    assert scene.controller.topic_on_demand("t") == NewTopic("t")


def test_topics_are_deleted_by_name_or_by_id() -> None:
    scene = Scene()
    by_name, by_id = scene.create("by-name"), scene.create("by-id")

    wanted = [TopicReference("by-name"), TopicReference(None, by_id.topic_id)]
    outcome = scene.commit(scene.controller.delete_topics(wanted))

    assert not scene.image.topics and not scene.image.topics_by_id
    assert [(each.name, each.topic_id) for each in outcome] == [
        ("by-name", by_name.topic_id),
        ("by-id", by_id.topic_id),
    ]
    assert scene.changes.topics_removed.keys() == {by_name.topic_id, by_id.topic_id}


def test_a_topic_that_cannot_be_deleted_says_why() -> None:
    scene = Scene()
    scene.commit(scene.controller.create_topics([scene.controller.topic_on_demand(OFFSETS_TOPIC)]))
    topic = scene.create("t")
    unknown = UUID(int=999)
    wanted = {
        TopicReference("missing"): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        TopicReference(None, unknown): ErrorCode.UNKNOWN_TOPIC_ID,
        TopicReference(None): ErrorCode.INVALID_REQUEST,
        TopicReference("t", topic.topic_id): ErrorCode.INVALID_REQUEST,
        TopicReference(OFFSETS_TOPIC): ErrorCode.POLICY_VIOLATION,
    }

    decision = scene.controller.delete_topics(list(wanted))

    assert [each.refused and each.refused.code for each in decision.answer] == [*wanted.values()]
    assert not decision.records


def test_a_topic_named_twice_is_not_deleted() -> None:
    scene = Scene()
    topic = scene.create("t")

    same = scene.controller.delete_topics([TopicReference("t"), TopicReference("t")])
    by_both = scene.controller.delete_topics(
        [TopicReference("t"), TopicReference(None, topic.topic_id)]
    )

    assert not same.records and not by_both.records
    assert len(same.answer) == 1 and len(by_both.answer) == 2
    for each in [*same.answer, *by_both.answer]:
        assert each.refused is not None and each.refused.code is ErrorCode.INVALID_REQUEST


def test_partitions_are_added_behind_the_others() -> None:
    scene = Scene(brokers=2)
    scene.create("t", partitions=1, factor=2)

    outcome = scene.commit(scene.controller.create_partitions([MorePartitions("t", 3)]))

    assert outcome == {"t": None}
    assert [each.replicas for each in scene.topic("t").partitions.values()] == [
        (1, 2),
        (2, 1),
        (1, 2),
    ]
    assert {index for _, index in scene.changes.partitions_added} == {1, 2}
    assert not scene.changes.topics_created


@pytest.mark.parametrize(
    ("wanted", "code"),
    [
        (MorePartitions("missing", 3), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (MorePartitions("t", 2), ErrorCode.INVALID_PARTITIONS),
        (MorePartitions("t", 1), ErrorCode.INVALID_PARTITIONS),
        (MorePartitions("t", 0), ErrorCode.INVALID_PARTITIONS),
        (MorePartitions("t", -5), ErrorCode.INVALID_PARTITIONS),
        (MorePartitions("t", 20_000), ErrorCode.POLICY_VIOLATION),
        (MorePartitions("t", 4, ((1,),)), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (MorePartitions("t", 3, ((9,),)), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (MorePartitions("t", 3, ((1, 2),)), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (MorePartitions("compacted", 3), ErrorCode.POLICY_VIOLATION),
    ],
)
def test_partitions_that_cannot_be_added_are_refused(
    wanted: MorePartitions, code: ErrorCode
) -> None:
    scene = Scene(brokers=2)
    scene.create("t", partitions=2)
    scene.create("compacted", cleanup_policy="compact,delete")

    decision = scene.controller.create_partitions([wanted])

    refused = decision.answer[wanted.name]
    assert refused is not None and refused.code is code
    assert not decision.records


def test_the_same_topic_twice_in_a_request_for_partitions_is_refused() -> None:
    scene = Scene()
    scene.create("t")

    decision = scene.controller.create_partitions([MorePartitions("t", 2), MorePartitions("t", 3)])

    refused = decision.answer["t"]
    assert refused is not None and refused.code is ErrorCode.INVALID_REQUEST
    assert not decision.records
