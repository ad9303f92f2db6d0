"""The image is what its records say, however they are cut up, and a snapshot of it is the same."""

from random import Random
from typing import get_type_hints
from uuid import UUID

import orjson
import pytest
from hypothesis import given
from hypothesis.strategies import (
    SearchStrategy,
    booleans,
    builds,
    floats,
    integers,
    lists,
    none,
    text,
    uuids,
)

from headwater.core_log.foundation.errors import CorruptLog, DecodeError
from headwater.core_log.replication.decisions import (
    ConfigChange,
    MorePartitions,
    NewTopic,
    TopicReference,
)
from headwater.core_log.replication.decisions import ConfigOperation as Op
from headwater.core_log.replication.metadata import MetadataImage
from headwater.core_log.replication.metadata_records import (
    KINDS,
    BrokerFenceRecord,
    Doubt,
    MetadataRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicConfigRecord,
    TopicRecord,
    decode_record,
    encode_record,
)
from tests.core_log.replication.controller_in_memory import Scene

ID, OTHER = UUID(int=1), UUID(int=2)
NUMBERS = integers(-(1 << 63), (1 << 63) - 1)
VALUES: dict[object, SearchStrategy[object]] = {
    int: NUMBERS,
    str: text(),
    bool: booleans(),
    UUID: uuids(),
    tuple[int, ...]: lists(NUMBERS).map(tuple),
    tuple[int, ...] | None: none() | lists(NUMBERS).map(tuple),
    int | None: none() | NUMBERS,
    str | None: none() | text(),
    tuple[Doubt, ...]: lists(builds(Doubt, NUMBERS, NUMBERS, NUMBERS)).map(tuple),
    float | None: none() | floats(allow_nan=False, allow_infinity=False),
}


@pytest.mark.property
@pytest.mark.parametrize("kind", KINDS)
def test_a_record_is_read_back_as_it_was_written(kind: str) -> None:
    fields = {name: VALUES[hint] for name, hint in get_type_hints(KINDS[kind]).items()}

    @given(record=builds(KINDS[kind], **fields))
    def check(record: MetadataRecord) -> None:
        assert decode_record(encode_record(record)) == record

    check()


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"[]",
        b"7",
        b"{}",
        b'{"version":1}',
        b'{"version":1,"type":"topic","name":"t"}',
        b'{"version":1,"type":"topic","name":"t","topic_id":"' + str(ID).encode() + b'","x":1}',
        b'{"version":1,"type":"topic","name":"t","topic_id":"nonsense"}',
        b'{"version":1,"type":"topic","name":"t","topic_id":7}',
        b'{"version":1,"type":["topic"]}',
    ],
)
def test_bytes_that_are_no_record_are_refused(data: bytes) -> None:
    with pytest.raises(DecodeError):
        decode_record(data)


def test_a_record_of_a_newer_version_stops_an_older_broker() -> None:
    values = orjson.loads(encode_record(TopicRecord("t", ID)))

    for newer in ({**values, "version": 9}, {**values, "type": "share-group"}):
        with pytest.raises(DecodeError, match="newer version"):
            decode_record(orjson.dumps(newer))


def test_a_record_is_written_in_the_oldest_version_that_holds_it() -> None:
    plain = PartitionChangeRecord(ID, 0, (1,), 1, 0, 1)
    newer = PartitionChangeRecord(ID, 0, (), -1, 0, 1, (1, 2))

    values = [orjson.loads(encode_record(each)) for each in (plain, newer)]

    assert [each["version"] for each in values] == [1, 2]
    assert ["eligible" in each for each in values] == [False, True]
    with pytest.raises(DecodeError, match="other fields"):
        decode_record(orjson.dumps({**values[1], "version": 1}))


def some_decision(scene: Scene, random: Random) -> None:
    """Any of the things that happen to a cluster."""
    controller, name = scene.controller, random.choice("abcd")
    match random.randrange(8):
        case 0 | 1:
            config: dict[str, str | None] = {"retention.ms": str(random.randint(1, 9))}
            wanted = NewTopic(name, random.randint(1, 3), random.randint(1, 3), config=config)
            scene.commit(controller.create_topics([wanted]))
        case 2:
            scene.commit(controller.delete_topics([TopicReference(name)]))
        case 3:
            scene.commit(controller.create_partitions([MorePartitions(name, 5)]))
        case 4:
            change = ConfigChange("segment.ms", random.choice([Op.SET, Op.DELETE]), "1000")
            scene.commit(controller.alter_config(name, [change]))
        case 5:
            scene.register(random.randint(1, 4))
        case 6:
            scene.commit(controller.fence_broker(random.randint(1, 4)))
        case _:
            broker_id, broker = random.choice([*scene.image.brokers.items()])
            scene.commit(controller.allocate_producer_ids(broker_id, broker.broker_epoch))


def contents(image: MetadataImage) -> object:
    return (image.topics, image.topics_by_id, image.brokers, image.features, image.next_producer_id)


@pytest.mark.property
@given(seed=integers(0, 1 << 32))
def test_a_snapshot_rebuilds_the_image(seed: int) -> None:
    scene, random = Scene(brokers=3), Random(seed)
    for _ in range(30):
        some_decision(scene, random)
    encoded = [encode_record(each) for each in scene.image.records()]

    rebuilt = MetadataImage()
    rebuilt.apply(map(decode_record, encoded), scene.image.end_offset)

    assert contents(rebuilt) == contents(scene.image)
    assert rebuilt.end_offset == scene.image.end_offset
    assert len(encoded) >= scene.image.record_count


@pytest.mark.property
@given(seed=integers(0, 1 << 32))
def test_a_follower_of_the_changes_knows_what_the_image_knows(seed: int) -> None:
    """As a broker does, which opens, changes and deletes its partitions accordingly."""
    scene, random = Scene(brokers=3), Random(seed)
    followed: dict[tuple[UUID, int], PartitionRecord] = {}
    configs: dict[UUID, dict[str, str]] = {}

    for _ in range(40):
        some_decision(scene, random)
        changes = scene.changes
        for topic_id, topic in changes.topics_removed.items():
            configs.pop(topic_id)
            for index in topic.partitions:
                followed.pop((topic_id, index))
        assert not followed.keys() & changes.partitions_added.keys()
        followed |= changes.partitions_added
        assert changes.partitions_changed.keys() <= followed.keys()
        followed |= changes.partitions_changed
        for topic in [*changes.topics_created.values(), *changes.configs_changed.values()]:
            configs[topic.topic_id] = dict(topic.config)

    topics = scene.image.topics_by_id
    assert configs == {topic_id: topic.config for topic_id, topic in topics.items()}
    assert followed == {
        (topic_id, index): each
        for topic_id, topic in topics.items()
        for index, each in topic.partitions.items()
    }


def partition(topic_id: UUID = ID, epoch: int = 0) -> PartitionRecord:
    return PartitionRecord(topic_id, 0, (1,), (1,), 1, epoch, epoch)


def change(epoch: int, topic_id: UUID = ID, index: int = 0) -> PartitionChangeRecord:
    return PartitionChangeRecord(topic_id, index, (1,), 1, epoch, epoch)


def test_changes_within_one_stretch_are_netted() -> None:
    image = MetadataImage()

    changes = image.apply(
        [
            TopicRecord("stays", ID),
            TopicConfigRecord(ID, "segment.ms", "1"),
            partition(),
            change(1),
            TopicRecord("goes", OTHER),
            partition(OTHER),
            change(1, OTHER),
            RemoveTopicRecord(OTHER),
        ],
        8,
    )

    assert changes.topics_created.keys() == {ID}
    assert changes.partitions_added == {(ID, 0): partition(epoch=1)}
    assert not changes.topics_removed
    assert not changes.partitions_changed
    assert not changes.configs_changed


def test_a_topic_can_come_back_under_its_name_with_another_id() -> None:
    image = MetadataImage()
    image.apply([TopicRecord("t", ID), partition()], 2)

    changes = image.apply([RemoveTopicRecord(ID), TopicRecord("t", OTHER), partition(OTHER)], 5)

    assert changes.topics_removed.keys() == {ID}
    assert changes.topics_created.keys() == {OTHER}
    assert image.topics["t"].topic_id == OTHER


@pytest.mark.parametrize(
    "records",
    [
        [TopicRecord("t", OTHER)],
        [TopicRecord("u", ID)],
        [partition(OTHER)],
        [RemoveTopicRecord(OTHER)],
        [TopicConfigRecord(OTHER, "segment.ms", "1")],
        [change(1, index=7)],
        [change(1), change(1)],
        [change(0)],
        [BrokerFenceRecord(9, 1, True)],
    ],
)
def test_records_that_contradict_what_is_known_are_damage(records: list[MetadataRecord]) -> None:
    image = MetadataImage()
    image.apply([TopicRecord("t", ID), partition()], 2)

    with pytest.raises(CorruptLog):
        image.apply(records, 3)


@pytest.mark.property
@given(data=text().map(str.encode) | builds(bytes, integers(0, 40)))
def test_noise_is_no_record(data: bytes) -> None:
    with pytest.raises(DecodeError):
        decode_record(data)
