"""The records of voters follow them to where they listen, so that who has the log finds them."""

import logging
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from headwater.core_log.broker.broker import Broker
from headwater.core_log.broker.handlers import update_raft_voter
from headwater.core_log.broker.quorum_log import encode_voters, voters_in
from headwater.core_log.broker.quorum_messages import (
    read_update_voter_request,
    update_voter_request,
)
from headwater.core_log.broker.voter_places import VoterPlaces
from headwater.core_log.protocol.error_codes import ErrorCode
from headwater.core_log.protocol.messages.update_raft_voter import (
    KRaftVersionRange,
    UpdateRaftVoterRequest,
    VoterListener,
)
from headwater.core_log.replication import snapshots
from headwater.core_log.replication.snapshots import (
    MetadataSnapshot,
    decode_snapshot,
    encode_snapshot,
)
from headwater.core_log.replication.voters import QUORUM_VERSIONS, QuorumVersions, ReplicaKey, Voter
from tests.core_log.broker.cluster_in_memory import PORT, Cluster
from tests.core_log.broker.in_memory import SERVED

ONE, TWO = (ReplicaKey(each, UUID(int=each)) for each in (1, 2))
OLD, NEW = Voter(TWO, "old", 1), Voter(TWO, "new", 2)


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    """Three brokers that vote."""
    cluster = Cluster()
    for node_id in (1, 2, 3):
        await cluster.start(node_id)
    await cluster.until(lambda: all(len(e.quorum.voters) == 3 for e in cluster.brokers.values()))
    yield cluster
    await cluster.close()


def recorded_ports(broker: Broker) -> dict[int, int]:
    quorum = broker.quorum
    found = {each.node_id: quorum.places.record_of(each) for each in quorum.voters}
    return {node_id: voter.port for node_id, voter in found.items() if voter is not None}


async def move(cluster: Cluster, node_id: int, port: int) -> None:
    """The broker stops, and starts where it listens at another port."""
    await cluster.stop(node_id)
    cluster.ports[node_id] = port
    await cluster.start(node_id)


@pytest.mark.slow
@pytest.mark.parametrize("is_leader", [True, False], ids=["leader", "follower"])
async def test_the_record_of_a_voter_follows_it_to_its_new_address(
    cluster: Cluster, is_leader: bool
) -> None:
    controller = cluster.controller
    assert controller is not None
    leader_id = controller.node_id
    moved = leader_id if is_leader else leader_id % 3 + 1

    await move(cluster, moved, PORT + 1)

    wanted = dict.fromkeys((1, 2, 3), PORT) | {moved: PORT + 1}
    await cluster.until(
        lambda: all(recorded_ports(each) == wanted for each in cluster.brokers.values())
    )


@pytest.mark.slow
async def test_a_leader_tells_its_new_address_in_its_own_record(cluster: Cluster) -> None:
    """Nobody but itself can write it down."""
    controller = cluster.controller
    assert controller is not None
    own = controller.quorum.places.own
    assert own is not None

    controller.quorum.places.own = own._replace(port=PORT + 1)

    key = controller.quorum.replica
    await cluster.until(
        lambda: all(
            (found := each.quorum.places.record_of(key)) is not None and found.port == PORT + 1
            for each in cluster.brokers.values()
        )
    )


async def test_a_broker_finds_the_others_where_the_log_says_that_they_listen(
    cluster: Cluster,
) -> None:
    """All have moved while it was up, and it is told of none of them when it starts again."""
    for node_id in (2, 3):
        await move(cluster, node_id, PORT + node_id)
    wanted = {1: PORT, 2: PORT + 2, 3: PORT + 3}
    await cluster.until(lambda: recorded_ports(cluster.brokers[1]) == wanted)
    await cluster.stop(1)

    again = await cluster.start(1, join=False)

    assert again.is_open and again.quorum.leader_id in (2, 3)


@pytest.mark.slow
async def test_a_leader_of_an_older_version_is_not_told(caplog: pytest.LogCaptureFixture) -> None:
    cluster = Cluster()
    older = {key: each for key, each in SERVED.items() if key != UpdateRaftVoterRequest.api_key}
    for node_id in (1, 2, 3):
        await cluster.start(node_id, served=older)
    await cluster.until(lambda: all(len(e.quorum.voters) == 3 for e in cluster.brokers.values()))
    controller = cluster.controller
    assert controller is not None
    moved = controller.node_id % 3 + 1
    caplog.set_level(logging.DEBUG, "headwater.core_log.broker")

    await move(cluster, moved, PORT + 1)
    quorum = cluster.brokers[moved].quorum
    await cluster.until(lambda: quorum._tell_ms)
    first_ms = quorum._tell_ms
    await cluster.until(lambda: quorum._tell_ms > first_ms)

    assert recorded_ports(cluster.brokers[moved])[moved] == PORT
    assert "UpdateRaftVoter" not in caplog.text
    await cluster.close()


async def leader_of(cluster: Cluster) -> Broker:
    """The controller, once it may write records of voters."""
    await cluster.until(
        lambda: cluster.controller is not None and cluster.controller.quorum.may_record_voters
    )
    assert cluster.controller is not None
    return cluster.controller


def telling(leader: Broker, **others: Any) -> UpdateRaftVoterRequest:
    voter = next(each for each in leader.quorum.voters if each != leader.quorum.replica)
    moved = Voter(voter, "elsewhere", 7)
    request = update_voter_request(moved, leader.quorum.leader_epoch, leader.cluster_id)
    return replace(request, **others)


CASES: dict[str, tuple[dict[str, Any], ErrorCode]] = {
    "another cluster": ({"cluster_id": "other"}, ErrorCode.INCONSISTENT_CLUSTER_ID),
    "an older epoch": ({"current_leader_epoch": 0}, ErrorCode.FENCED_LEADER_EPOCH),
    "a newer epoch": ({"current_leader_epoch": 1_000_000}, ErrorCode.UNKNOWN_LEADER_EPOCH),
    "no voter": ({"voter_id": -1}, ErrorCode.INVALID_REQUEST),
    "no directory": ({"voter_directory_id": UUID(int=0)}, ErrorCode.INVALID_REQUEST),
    "another directory": ({"voter_directory_id": UUID(int=9)}, ErrorCode.VOTER_NOT_FOUND),
    "no listener": ({"listeners": ()}, ErrorCode.INVALID_REQUEST),
    "another listener": (
        {"listeners": (VoterListener(name="OTHER", host="h", port=1),)},
        ErrorCode.INVALID_REQUEST,
    ),
    "no version": (
        {
            "k_raft_version_feature": KRaftVersionRange(
                min_supported_version=1, max_supported_version=0
            )
        },
        ErrorCode.INVALID_REQUEST,
    ),
}


@pytest.mark.parametrize("case", CASES)
async def test_a_voter_that_cannot_be_moved_is_told_so(cluster: Cluster, case: str) -> None:
    others, code = CASES[case]
    leader = await leader_of(cluster)

    assert update_raft_voter.update(leader, telling(leader, **others)) is code

    assert set(recorded_ports(leader).values()) == {PORT}


async def test_a_voter_is_answered_with_the_leader_and_its_address(cluster: Cluster) -> None:
    leader = await leader_of(cluster)
    request, epoch = telling(leader), leader.quorum.leader_epoch
    other = next(each for each in cluster.brokers.values() if each is not leader)

    refused = await other.peers.ask(other.node_id, replace(request, listeners=()))
    taken = await other.peers.ask(leader.node_id, request)
    again = await other.peers.ask(leader.node_id, replace(request, voter_id=9))

    assert refused.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert taken.error_code == ErrorCode.NONE
    assert again.error_code in (ErrorCode.VOTER_NOT_FOUND, ErrorCode.REQUEST_TIMED_OUT)
    for each in (refused, taken, again):
        said = each.current_leader
        assert (said.leader_id, said.leader_epoch) == (leader.node_id, epoch)
        assert (said.host, said.port) == (f"node-{leader.node_id}", PORT)


async def test_one_record_of_voters_is_written_after_the_other(cluster: Cluster) -> None:
    leader = await leader_of(cluster)

    first = update_raft_voter.update(leader, telling(leader))
    second = update_raft_voter.update(leader, telling(leader))

    assert (first, second) == (ErrorCode.NONE, ErrorCode.REQUEST_TIMED_OUT)


async def test_a_voter_that_does_not_support_the_finalized_version_is_refused(
    cluster: Cluster,
) -> None:
    leader = await leader_of(cluster)
    versions = KRaftVersionRange(min_supported_version=2, max_supported_version=3)

    refused = update_raft_voter.update(leader, telling(leader, k_raft_version_feature=versions))

    assert refused is ErrorCode.INVALID_REQUEST


def places_of_two() -> VoterPlaces:
    places = VoterPlaces(TWO)
    places.start(("new", 2), lambda node_id: ("registered", node_id))
    return places


def test_a_voter_is_out_of_date_if_its_record_says_something_else() -> None:
    places = places_of_two()
    found = [places.outdated]
    records = (OLD, NEW._replace(versions=QuorumVersions(0, 0)), NEW)

    for offset, record in enumerate(records):
        places.add(offset, (record,))
        found.append(places.outdated)

    assert found == [None, NEW, NEW, None]


def test_a_record_that_is_taken_back_says_nothing_any_more() -> None:
    places = places_of_two()
    places.add(4, (OLD,))
    places.add(7, (NEW,))

    places.truncate_to(7)

    assert places.record_of(TWO) == OLD and places.outdated == NEW
    assert places.record_at(TWO, 5) == OLD


def test_the_next_record_has_what_a_voter_told_and_otherwise_what_the_last_one_had() -> None:
    places = places_of_two()
    elsewhere, told = Voter(ONE, "elsewhere", 3), Voter(ONE, "told", 4)
    found = [places.voter(ONE)]
    places.add(0, (elsewhere, NEW))
    found.append(places.voter(ONE))
    places.tell(told)
    found.append(places.voter(ONE))
    places.add(1, (elsewhere, NEW))
    found.append(places.voter(ONE))

    assert found == [Voter(ONE, "registered", 1), elsewhere, told, elsewhere]


def test_the_versions_of_a_voter_are_in_records_messages_and_snapshots() -> None:
    voter = NEW._replace(versions=QuorumVersions(0, 3))

    [(_, recorded)] = voters_in(encode_voters([voter], now_ms=0))
    told = read_update_voter_request(update_voter_request(voter, 5, "cluster"))
    snapshot = MetadataSnapshot(9, 2, [], (voter,))
    data = encode_snapshot(snapshot, now_ms=0)

    assert recorded == (voter,)
    assert told == voter
    assert decode_snapshot(data).voters == (voter,)
    assert QUORUM_VERSIONS == (0, 1), "as Apache Kafka 4.3"


def test_a_snapshot_without_versions_of_voters_is_of_an_older_broker() -> None:
    values = {"id": 2, "directory_id": str(TWO.directory_id), "host": "new", "port": 2}

    assert snapshots._read_voter(values) == NEW._replace(versions=QuorumVersions(0, 0))
