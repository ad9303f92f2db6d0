"""A client is sent to a follower in its rack, by the rules of Kafka's RackAwareReplicaSelector."""

import pytest

from headwater.core_log.replication.leader import Leader, choose_read_replica
from headwater.core_log.replication.metadata_records import Assignment

RACKS = {1: "a", 2: "b", 3: "b", 4: None}


def leader_with(*followers: tuple[int, int, int, int]) -> Leader:
    """Followers by id, start offset, offset and when each was caught up."""
    leader = Leader(
        broker_id=1,
        leader_epoch=0,
        assignment=Assignment((1, 2, 3, 4)),
        in_sync=frozenset({1, *(each[0] for each in followers)}),
    )
    for replica, start, offset, caught_up_ms in followers:
        progress = leader.progress[replica]
        progress.start_offset, progress.offset = start, offset
        progress.caught_up_ms = caught_up_ms
    return leader


def test_the_leader_is_read_where_it_is_near_or_nobody_is() -> None:
    leader = leader_with((2, 0, 10, 0))

    for rack in ("", "a", "c"):
        assert choose_read_replica(leader, rack=rack, racks=RACKS, offset=5) is None


@pytest.mark.parametrize(
    ("followers", "chosen"),
    [
        ([(2, 0, 10, 5)], 2),
        ([(2, 0, 10, 5), (3, 0, 11, 1)], 3),
        ([(2, 0, 10, 6), (3, 0, 10, 5)], 2),
        ([(2, 0, 10, 5), (3, 0, 10, 5)], 3),
        ([(2, 6, 10, 5), (3, 0, 4, 5)], None),
    ],
    ids=["the only one", "the newest", "caught up last", "the larger id", "without the offset"],
)
def test_the_follower_with_most_of_the_log_is_chosen(
    followers: list[tuple[int, int, int, int]], chosen: int | None
) -> None:
    leader = leader_with(*followers)

    assert choose_read_replica(leader, rack="b", racks=RACKS, offset=5) == chosen


def test_a_follower_that_is_not_in_sync_or_not_alive_is_not_chosen() -> None:
    leader = leader_with((2, 0, 10, 0), (3, 0, 10, 0))
    leader.in_sync = frozenset({1, 2})

    assert choose_read_replica(leader, rack="b", racks=RACKS, offset=5) == 2
    assert choose_read_replica(leader, rack="b", racks={1: "a", 3: "b"}, offset=5) is None
