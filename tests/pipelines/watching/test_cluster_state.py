"""The state of a cluster names every node that is away and every partition that is not well."""

from uuid import UUID

from headwater.core_log.client.cluster_admin import (
    BrokerDescription,
    ClusterDescription,
    QuorumDescription,
)
from headwater.core_log.client.topic_admin import PartitionDescription, TopicDescription
from headwater.pipelines.watching.cluster_state import ClusterState, NodeState, shorten, state_of

ALL = (1, 2, 3)


def state(
    *partitions: PartitionDescription,
    alive: tuple[int, ...] = ALL,
    leader: int = 1,
    voters: dict[int, int] | None = None,
) -> ClusterState:
    brokers = tuple(BrokerDescription(node, "127.0.0.1", 9090 + node) for node in alive)
    return state_of(
        ClusterDescription("c", leader, brokers),
        QuorumDescription(leader, 5, voters or {1: 40, 2: 40, 3: 38}, {}),
        [TopicDescription("orders", UUID(int=1), is_internal=False, partitions=partitions)],
        {"orders": 2},
    )


def partition(leader: int, in_sync: tuple[int, ...]) -> PartitionDescription:
    return PartitionDescription(0, leader, ALL, in_sync)


def test_a_whole_cluster_has_no_problem() -> None:
    found = state(partition(2, ALL))

    assert not found.problems
    assert found.quorum == "leader 1, epoch 5, voters 1 2 3"
    assert found.nodes == [
        NodeState(1, "127.0.0.1:9091", "leader", 0, leads=0, replicas=1, in_sync=1),
        NodeState(2, "127.0.0.1:9092", "voter", 0, leads=1, replicas=1, in_sync=1),
        NodeState(3, "127.0.0.1:9093", "voter", 2, leads=0, replicas=1, in_sync=1),
    ]


def test_a_voter_that_is_no_live_broker_is_away() -> None:
    found = state(partition(2, (1, 2)), alive=(1, 2))

    assert found.nodes[2].address == "away"
    assert found.problems == [
        "node 3 is away",
        "orders-0 is under-replicated: in sync on 1 2 of 1 2 3",
    ]


def test_a_partition_below_its_minimum_takes_no_acknowledged_write() -> None:
    found = state(partition(2, (2,)))

    assert found.problems == [
        "orders-0 takes no acks=all: in sync on 2 of 1 2 3, min.insync.replicas is 2"
    ]


def test_a_partition_without_a_leader_is_offline() -> None:
    assert state(partition(-1, (3,))).problems == ["orders-0 is offline: in sync on 3 of 1 2 3"]


def test_a_quorum_without_a_leader_is_a_problem() -> None:
    found = state(partition(2, ALL), leader=-1)

    assert found.problems == ["the metadata quorum has no leader"]
    assert found.quorum == "no leader"


def test_the_lag_of_a_voter_that_nobody_knows_is_not_invented() -> None:
    found = state(partition(2, ALL), voters={1: 40, 2: -1, 3: 40})

    assert [each.metadata_lag for each in found.nodes] == [0, None, 0]


def test_partitions_of_a_topic_with_the_same_problem_are_one_line() -> None:
    behind = "is under-replicated: in sync on 2 3 of 1 2 3"
    problems = [
        "node 1 is away",
        *(f"a-b-{each} {behind}" for each in range(16)),
        "a-b-16 is offline: in sync on none of 1 2 3",
        f"orders-0 {behind}",
    ]

    assert shorten(problems) == [
        "node 1 is away",
        f"a-b-0 {behind} (and 15 more of the topic)",
        "a-b-16 is offline: in sync on none of 1 2 3",
        f"orders-0 {behind}",
    ]
