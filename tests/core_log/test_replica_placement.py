"""Replicas are spread evenly and over racks, and each plan is the same for the same input."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.core_log.model.log import TopicPartition
from headwater.core_log.model.replica_placement import Racks, ReplicaPlan, Replicas

NO_RACKS: Racks = dict.fromkeys((1, 2, 3, 4))


def at(index: int) -> TopicPartition:
    return TopicPartition("t", index)


def plan(*replicas: Replicas, racks: Racks = NO_RACKS) -> ReplicaPlan:
    return ReplicaPlan({at(index): each for index, each in enumerate(replicas)}, racks)


def test_one_more_replica_goes_to_the_broker_with_the_fewest() -> None:
    found = plan((1, 2), (1, 3))

    assert found.add(at(0)) and found.add(at(1))

    assert found.changes == {at(0): (1, 2, 4), at(1): (1, 3, 2)}


def test_another_rack_comes_before_fewer_replicas() -> None:
    found = plan((1,), (3,), racks={1: "a", 2: "a", 3: "b"})

    found.add(at(0))

    assert found.changes == {at(0): (1, 3)}


def test_a_replica_that_leaves_is_replaced_in_its_place() -> None:
    found = plan((4, 1), (2, 4), (3,), racks=dict.fromkeys((1, 2, 3)))

    assert found.leave(at(0), 4) and found.leave(at(1), 4)

    assert found.changes == {at(0): (2, 1), at(1): (2, 1)}


def test_a_replica_without_another_broker_stays() -> None:
    found = plan((1, 2, 3), racks=dict.fromkeys((1, 2)))

    assert not found.leave(at(0), 3)
    assert not found.changes


def test_a_new_broker_gets_its_share_and_nothing_else_moves() -> None:
    found = plan((1, 2, 3), (2, 3, 1), (3, 1, 2), (1, 2, 3))

    found.balance()

    held = Counter(each for replicas in found.replicas.values() for each in replicas)
    assert held == {1: 3, 2: 3, 3: 3, 4: 3}
    assert all(len({*found.replicas[at(i)]} - {4}) >= 2 for i in range(4))


@pytest.mark.property
@given(
    replicas=st.lists(
        st.lists(st.integers(1, 4), min_size=1, max_size=3, unique=True).map(tuple), max_size=12
    )
)
def test_a_balanced_plan_is_even_and_has_nothing_left_to_do(replicas: list[Replicas]) -> None:
    found = plan(*replicas)

    found.balance()

    held = Counter({1: 0, 2: 0, 3: 0, 4: 0})
    held.update(each for after in found.replicas.values() for each in after)
    assert max(held.values()) - min(held.values()) <= 1
    assert all(len({*after}) == len(after) for after in found.replicas.values())
    again = plan(*found.replicas.values())
    again.balance()
    assert not again.changes
