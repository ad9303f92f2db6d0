"""A topic's replicas lie in different racks as far as there are enough, and everything is spread
evenly."""

from collections import Counter
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis.strategies import integers, lists, sampled_from

from headwater.core_log.replication.assignments import place
from headwater.core_log.replication.decisions import NewTopic
from headwater.core_log.replication.metadata import Topic
from tests.core_log.replication.controller_in_memory import Scene


def test_replicas_follow_one_another_where_there_are_no_racks() -> None:
    brokers = dict.fromkeys((1, 2, 3, 4))

    assert place(brokers, alive=brokers, first=1, count=3, replication_factor=3) == [
        (2, 3, 4),
        (3, 4, 1),
        (4, 1, 2),
    ]


def test_replicas_of_a_partition_have_different_racks() -> None:
    brokers = {1: "a", 2: "a", 3: "b", 4: "b", 5: "c", 6: "c"}

    placed = place(brokers, alive=brokers, first=0, count=6, replication_factor=3)

    assert all(len({brokers[each] for each in replicas}) == 3 for replicas in placed)
    held = Counter(each for replicas in placed for each in replicas)
    assert set(held.values()) == {3}
    assert sorted(replicas[0] for replicas in placed) == [1, 2, 3, 4, 5, 6]


def test_a_rack_with_one_broker_is_in_every_partition() -> None:
    brokers = {1: "a", 2: "a", 3: "a", 4: "b"}

    placed = place(brokers, alive=brokers, first=0, count=4, replication_factor=2)

    assert all(4 in replicas for replicas in placed)


@given(
    racks=lists(sampled_from(["a", "b", "c", None]), min_size=1, max_size=8),
    first=integers(0, 20),
    count=integers(1, 12),
    factor=integers(1, 8),
)
def test_replicas_differ_and_racks_repeat_only_when_they_are_used_up(
    racks: list[str | None], first: int, count: int, factor: int
) -> None:
    brokers = dict(enumerate(racks, start=1))
    factor = min(factor, len(brokers))
    of_its_own = {node: rack or f"broker {node}" for node, rack in brokers.items()}

    placed = place(brokers, alive=brokers, first=first, count=count, replication_factor=factor)

    assert len(placed) == count
    for replicas in placed:
        assert len(set(replicas)) == factor
        used = {of_its_own[each] for each in replicas}
        assert len(used) == min(factor, len(set(of_its_own.values())))
    led = Counter(replicas[0] for replicas in placed)
    assert max(led.values()) - min(led[each] for each in brokers) <= 1


def test_a_fenced_broker_gets_a_replica_where_too_few_are_alive() -> None:
    brokers = dict.fromkeys((1, 2, 3, 4))

    placed = place(brokers, alive=(1, 3), first=0, count=3, replication_factor=3)

    assert placed == [(1, 3, 2), (3, 1, 4), (1, 3, 2)]


@pytest.mark.parametrize("racks", [("a", "a", "b"), ("a", "b", "b")])
def test_the_controller_knows_the_racks_of_registered_brokers(racks: tuple[str, ...]) -> None:
    scene = Scene(brokers=0)
    for broker_id, rack in enumerate(racks, start=1):
        scene.commit(
            scene.controller.register_broker(
                broker_id, UUID(int=broker_id), host="h", port=9092, rack=rack
            )
        )

    outcome = scene.commit(scene.controller.create_topics([NewTopic("t", 6, 2)]))["t"]

    assert isinstance(outcome, Topic)
    for each in scene.topic("t").partitions.values():
        assert {racks[node - 1] for node in each.replicas} == {"a", "b"}
