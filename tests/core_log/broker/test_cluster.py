"""Brokers that join become members and voters, decide what any of them is asked, and go on without
any one of them."""

import asyncio
import errno
import os
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest

from headwater.core_log.broker import cluster_member
from headwater.core_log.broker.active_controller import ActiveController
from headwater.core_log.broker.broker import Broker
from headwater.core_log.broker.handlers import describe_quorum
from headwater.core_log.broker.lifecycle import PeriodicTasks, cluster_to_join
from headwater.core_log.foundation.errors import ConfigError, HeadwaterError, LogUnavailable
from headwater.core_log.foundation.settings import BrokerSettings
from headwater.core_log.links.connection import ConnectionLost
from headwater.core_log.protocol.error_codes import ErrorCode
from headwater.core_log.protocol.inter_broker_messages import MemberRegistrationRequest
from headwater.core_log.protocol.messages.add_raft_voter import AddRaftVoterRequest
from headwater.core_log.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from headwater.core_log.protocol.messages.broker_registration import (
    BrokerListener,
)
from headwater.core_log.protocol.messages.create_topics import (
    CreatableTopic,
    CreateTopicsRequest,
)
from headwater.core_log.protocol.messages.describe_cluster import DescribeClusterRequest
from headwater.core_log.protocol.messages.describe_quorum import (
    DescribedQuorumPartition,
    DescribeQuorumPartition,
    DescribeQuorumRequest,
    DescribeQuorumTopic,
)
from headwater.core_log.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from headwater.core_log.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest
from headwater.core_log.protocol.messages.vote import VoteRequest
from headwater.core_log.replication import metadata_log
from headwater.core_log.replication.decisions import TopicReference
from headwater.core_log.replication.liveness import Liveness
from headwater.core_log.replication.metadata import METADATA_TOPIC
from headwater.core_log.replication.snapshots import MetadataSnapshots, decode_snapshot
from headwater.core_log.replication.voters import NOBODY
from tests.builders import DATA
from tests.core_log.broker.cluster_in_memory import PORT, WAIT_S, Cluster
from tests.core_log.broker.in_memory import SERVED
from tests.fakes import FaultyFiles, MemoryFiles

pytestmark = pytest.mark.slow

FOR_EVER_MS = 3_600_000
METADATA_DIRECTORY = DATA / "log" / "__cluster_metadata-0"


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    cluster = Cluster()
    yield cluster
    await cluster.close()


async def three(cluster: Cluster) -> list[Broker]:
    """Three brokers that vote."""
    await cluster.start(1)
    await cluster.start(2)
    await cluster.start(3)
    await cluster.until(lambda: all(vote(each) == [1, 2, 3] for each in cluster.brokers.values()))
    return list(cluster.brokers.values())


def let_silence_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """No controller notices missed heartbeats any more."""
    monkeypatch.setattr(Liveness, "list_silent", lambda *_: [])
    monkeypatch.setattr(Liveness, "list_expired", lambda *_: [])


def vote(broker: Broker) -> list[int]:
    return [each.node_id for each in broker.quorum.voters]


async def create(cluster: Cluster, node_id: int, name: str) -> int:
    client = await cluster.client_of(node_id)
    topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1)
    answer = await client.ask(CreateTopicsRequest(topics=(topic,)))
    client.close()
    return answer.topics[0].error_code


async def described(cluster: Cluster, node_id: int) -> DescribedQuorumPartition:
    client = await cluster.client_of(node_id)
    partition = DescribeQuorumPartition(partition_index=0)
    topic = DescribeQuorumTopic(topic_name=METADATA_TOPIC, partitions=(partition,))
    answer = await client.ask(DescribeQuorumRequest(topics=(topic,)))
    client.close()
    return answer.topics[0].partitions[0]


async def test_a_replica_that_fetches_no_more_is_no_observer_after_a_while(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    await three(cluster)
    await cluster.start(4)

    cluster.kill(4)
    assert await observers(cluster) == [4]
    monkeypatch.setattr(describe_quorum, "OBSERVER_MS", 1)

    async with asyncio.timeout(WAIT_S):
        while await observers(cluster):
            pass


async def observers(cluster: Cluster) -> list[int]:
    return [each.replica_id for each in (await described(cluster, 1)).observers]


async def test_a_broker_that_joins_is_a_live_member_and_knows_the_topics(cluster: Cluster) -> None:
    first = await cluster.start(1)
    await create(cluster, 1, "before")

    second = await cluster.start(2)

    assert second.cluster_id == first.cluster_id
    assert second.image.topic("before") is not None
    assert first.image.alive == second.image.alive == [1, 2]
    client = await cluster.client_of(2)
    named = await client.ask(DescribeClusterRequest())
    assert named.brokers[0].host == "node-1"


async def test_a_broker_without_a_vote_finds_its_leader_again_after_a_pause(
    cluster: Cluster,
) -> None:
    """The leader of its epoch is the only one that it can ask."""
    await cluster.start(1)
    second = await cluster.start(2)
    quorum = second.quorum.quorum

    second.quorum.do(quorum.on_tick(second.clock.monotonic_ms() + 60_000))
    assert quorum.leader == NOBODY

    await cluster.until(lambda: quorum.leader == 1)


async def test_two_brokers_have_one_vote_and_three_have_three(cluster: Cluster) -> None:
    first = await cluster.start(1)
    await cluster.start(2)
    assert vote(first) == [1]

    await cluster.start(3)

    await cluster.until(lambda: vote(cluster.brokers[3]) == [1, 2, 3])
    said = await described(cluster, 3)
    assert said.leader_id == 1
    assert [each.replica_id for each in said.current_voters] == [1, 2, 3]


async def test_a_topic_created_at_any_broker_exists_there_at_once_and_soon_everywhere(
    cluster: Cluster,
) -> None:
    brokers = await three(cluster)

    for node_id in (1, 2, 3):
        assert await create(cluster, node_id, f"t{node_id}") == ErrorCode.NONE
        assert cluster.brokers[node_id].image.topic(f"t{node_id}") is not None
        assert await create(cluster, node_id, f"t{node_id}") == ErrorCode.TOPIC_ALREADY_EXISTS

    await cluster.until(lambda: all(len(each.image.topics) == 3 for each in brokers))
    leaders = {each.image.topics[f"t{n}"].topic_id for each in brokers for n in (1, 2, 3)}
    assert len(leaders) == 3


async def test_an_unknown_topic_is_created_through_any_broker(cluster: Cluster) -> None:
    await three(cluster)
    client = await cluster.client_of(3)
    wanted = MetadataRequestTopic(name="on-demand")

    answer = await client.ask(MetadataRequest(topics=(wanted,), allow_auto_topic_creation=True))

    assert answer.topics[0].error_code == ErrorCode.NONE
    assert [each.node_id for each in answer.brokers] == [1, 2, 3]


async def test_producer_ids_of_all_brokers_differ(cluster: Cluster) -> None:
    given = [await each.allocate_producer_ids() for each in await three(cluster)]

    assert len({each for block in given for each in block}) == sum(len(block) for block in given)


async def test_the_cluster_decides_on_after_the_controller_was_killed(cluster: Cluster) -> None:
    await three(cluster)
    assert await create(cluster, 2, "before") == ErrorCode.NONE

    cluster.kill(1)
    assert await create(cluster, 2, "after") == ErrorCode.NONE

    await cluster.until(lambda: cluster.brokers[3].image.topic("after") is not None)
    await cluster.until(lambda: cluster.brokers[2].image.alive == [2, 3])
    assert cluster.brokers[3].image.topic("before") is not None
    again = await cluster.start(1)
    assert again.image.topic("after") is not None and again.image.alive == [1, 2, 3]


async def test_a_killed_member_is_fenced_and_comes_back_under_a_new_registration(
    cluster: Cluster,
) -> None:
    first = (await three(cluster))[0]
    epoch = cluster.brokers[3].broker_epoch
    cluster.kill(3)

    await cluster.until(lambda: first.image.alive == [1, 2])
    again = await cluster.start(3)

    assert first.image.alive == [1, 2, 3] and again.broker_epoch > epoch


async def test_a_killed_member_is_fenced_as_soon_as_its_connection_ends(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Missed heartbeats would show it after a second."""
    first, _, _ = await three(cluster)
    let_silence_pass(monkeypatch)
    assert first.is_controller

    cluster.kill(3)

    await cluster.until(lambda: first.image.alive == [1, 2])


async def test_a_member_is_looked_at_whose_heartbeat_is_taken_after_its_connection_has_ended(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, _, third = await three(cluster)
    let_silence_pass(monkeypatch)
    monkeypatch.setattr(ActiveController, "on_closed", lambda *_: None)
    request = BrokerHeartbeatRequest(broker_id=3, broker_epoch=third.broker_epoch)
    peer = await cluster.dial("node-1", PORT)
    peer.close()
    cluster.kill(3)

    await first.active_controller.heartbeat(request, peer)

    await cluster.until(lambda: first.image.alive == [1, 2])


async def test_a_member_whose_connections_end_is_not_fenced(cluster: Cluster) -> None:
    first, _, third = await three(cluster)
    epoch = third.broker_epoch

    for _ in range(5):
        cluster.break_connections(1)
        await asyncio.sleep(0.1)

    assert (first.image.alive, third.broker_epoch) == ([1, 2, 3], epoch)


async def test_all_members_that_were_killed_find_together_again(cluster: Cluster) -> None:
    await three(cluster)
    await create(cluster, 3, "t")
    for node_id in (1, 2, 3):
        cluster.kill(node_id)

    for node_id in (3, 2, 1):
        cluster.boot(node_id)

    await cluster.until(lambda: all(each.is_open for each in cluster.brokers.values()))
    assert all(each.image.topic("t") for each in cluster.brokers.values())
    assert len({each.quorum.leader_epoch for each in cluster.brokers.values()}) == 1


async def test_a_member_that_stops_hands_over_and_leaves_the_others_writable(
    cluster: Cluster,
) -> None:
    await three(cluster)

    await cluster.stop(1)

    assert await create(cluster, 3, "after") == ErrorCode.NONE
    assert cluster.brokers[3].image.alive == [2, 3]


async def test_a_fenced_broker_registers_again_by_itself(cluster: Cluster) -> None:
    first = (await three(cluster))[0]
    third = cluster.brokers[3]
    epoch = third.broker_epoch

    await first.metadata.change(lambda: first.controller.fence_broker(3))

    await cluster.until(lambda: first.image.alive == [1, 2, 3] and third.broker_epoch > epoch)
    assert third.broker_epoch == first.image.brokers[3].broker_epoch


async def test_a_second_broker_with_the_same_id_is_refused_while_the_first_one_lives(
    cluster: Cluster,
) -> None:
    first, second, _ = await three(cluster)

    answer = await first.active_controller.register(
        MemberRegistrationRequest(
            broker_id=2,
            cluster_id=first.cluster_id,
            listeners=(BrokerListener(name="PLAINTEXT", host="elsewhere", port=9092),),
            log_dirs=(UUID(int=77),),
        )
    )

    assert answer.error_code == ErrorCode.DUPLICATE_BROKER_REGISTRATION
    assert first.image.brokers[2].host == "node-2"
    assert first.image.brokers[2].broker_epoch == second.broker_epoch


async def test_a_broker_of_another_cluster_is_refused(cluster: Cluster) -> None:
    first = await cluster.start(1)
    request = MemberRegistrationRequest(broker_id=9, cluster_id="another")

    answer = await first.active_controller.register(request)

    assert answer.error_code == ErrorCode.INCONSISTENT_CLUSTER_ID
    cluster.boot(2)
    await cluster.until(lambda: cluster.brokers[2].is_open)
    await cluster.stop(2)
    cluster.cluster_id = "another"
    with pytest.raises(ConfigError, match="belongs to another cluster"):
        cluster.boot(2)


async def test_a_wiped_voter_is_replaced_by_its_new_directory(cluster: Cluster) -> None:
    first = (await three(cluster))[0]
    before = {each.node_id: each.directory_id for each in first.quorum.voters}
    cluster.kill(3)
    await cluster.until(lambda: first.image.alive == [1, 2])
    del cluster.files[3]

    await cluster.start(3)

    def is_replaced() -> bool:
        now = {each.node_id: each.directory_id for each in first.quorum.voters}
        return sorted(now) == [1, 2, 3] and now[3] != before[3]

    await cluster.until(is_replaced)


async def test_a_voter_that_lost_its_vote_votes_again_as_another_one(cluster: Cluster) -> None:
    first = (await three(cluster))[0]
    before = cluster.brokers[3].store.directory_id
    cluster.kill(3)
    await cluster.until(lambda: first.image.alive == [1, 2])
    cluster.files[3].remove(METADATA_DIRECTORY / "quorum-state")

    third = await cluster.start(3)

    assert third.store.directory_id != before
    await cluster.until(lambda: third.quorum.replica in first.quorum.voters)
    assert vote(first) == [1, 2, 3]


async def grow(cluster: Cluster, broker: Broker) -> None:
    """Makes the log so long that a snapshot takes the place of its beginning."""
    for _ in range(12):
        await broker.allocate_producer_ids()
    assert await broker.metadata.snapshot_if_grown(now_ms=1)
    assert broker.quorum.start_offset > 0


async def test_a_broker_joins_a_log_that_begins_with_a_snapshot(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metadata_log, "SNAPSHOT_AFTER_RECORDS", 10)
    first = await cluster.start(1)
    await create(cluster, 1, "before")
    await cluster.start(2)
    await grow(cluster, first)

    third = await cluster.start(3)

    assert third.image.topic("before") is not None and third.quorum.start_offset > 0
    assert third.image.alive == first.image.alive == [1, 2, 3]
    await cluster.until(lambda: vote(third) == [1, 2, 3])
    cluster.kill(1)
    assert await create(cluster, 3, "after") == ErrorCode.NONE


async def test_a_member_that_missed_the_records_of_a_snapshot_takes_it(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metadata_log, "SNAPSHOT_AFTER_RECORDS", 10)
    first = (await three(cluster))[0]
    await create(cluster, 1, "gone")
    await cluster.until(lambda: cluster.brokers[3].image.topic("gone") is not None)
    cluster.kill(3)
    await first.metadata.change(lambda: first.controller.delete_topics([TopicReference("gone")]))
    await create(cluster, 1, "new")
    await grow(cluster, first)

    third = await cluster.start(3)

    assert list(third.image.topics) == ["new"]
    cluster.kill(3)
    third = await cluster.start(3)
    assert list(third.image.topics) == ["new"]


async def test_a_crash_between_a_snapshot_and_its_log_leaves_the_snapshot(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metadata_log, "SNAPSHOT_AFTER_RECORDS", 10)
    first = (await three(cluster))[0]
    await create(cluster, 1, "t")
    cluster.kill(3)
    await grow(cluster, first)
    head = first.snapshots.newest_head()
    assert head is not None
    data = first.snapshots.read(head.end_offset, head.epoch)
    assert data is not None
    snapshots = MetadataSnapshots(cluster.files[3], METADATA_DIRECTORY)
    snapshots.put(decode_snapshot(data), data)

    third = await cluster.start(3)

    assert third.image.topic("t") is not None
    assert third.quorum.start_offset == head.end_offset


async def test_voters_are_removed_and_added_through_any_broker(cluster: Cluster) -> None:
    first = (await three(cluster))[0]
    third = cluster.brokers[3].quorum.replica
    unknown = AddRaftVoterRequest(cluster_id=None, voter_id=9, voter_directory_id=UUID(int=9))
    cluster.kill(3)
    client = await cluster.client_of(2)
    removal = RemoveRaftVoterRequest(
        cluster_id=None, voter_id=third.node_id, voter_directory_id=third.directory_id
    )

    removed = await client.ask(removal)
    again = await client.ask(removal)
    added = await client.ask(
        AddRaftVoterRequest(cluster_id=None, voter_id=1, voter_directory_id=UUID(int=1))
    )
    late = await client.ask(unknown)

    assert removed.error_code == ErrorCode.NONE and vote(first) == [1, 2]
    assert again.error_code == ErrorCode.VOTER_NOT_FOUND
    assert added.error_code == ErrorCode.DUPLICATE_VOTER
    assert late.error_code == ErrorCode.REQUEST_TIMED_OUT
    assert await create(cluster, 2, "decided-by-two") == ErrorCode.NONE
    await cluster.start(3)
    await cluster.until(lambda: vote(first) == [1, 2, 3])


async def test_a_cluster_syncs_whatever_its_first_broker_did(cluster: Cluster) -> None:
    await cluster.start(1, fsync="never")

    with pytest.raises(ConfigError, match="fsync=never"):
        await cluster.start(2)
    settings = BrokerSettings(join=["node-1:9092"], fsync="never")
    with pytest.raises(ConfigError, match="fsync=never"):
        await cluster_to_join(settings, MemoryFiles())


async def test_a_fourth_broker_is_a_member_without_a_vote(cluster: Cluster) -> None:
    first = (await three(cluster))[0]

    fourth = await cluster.start(4)

    assert first.image.alive == fourth.image.alive == [1, 2, 3, 4]
    assert vote(fourth) == [1, 2, 3]
    cluster.kill(1)
    assert await create(cluster, 4, "after") == ErrorCode.NONE
    await cluster.until(lambda: fourth.image.alive == [2, 3, 4])


async def test_a_new_directory_with_the_id_of_a_live_broker_is_refused(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_member, "DUPLICATE_S_MAX", 0.2)
    await cluster.start(1)

    settings = BrokerSettings(node_id=1, join=["node-1:9092"])
    with pytest.raises(ConfigError, match="node id belongs to another broker"):
        await cluster_to_join(settings, MemoryFiles(), cluster.dial)
    joining = BrokerSettings(node_id=2, join=["node-1:9092"])
    assert await cluster_to_join(joining, MemoryFiles(), cluster.dial) == cluster.cluster_id


async def test_a_member_without_a_majority_serves_no_client_and_loses_none(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    await three(cluster)
    await create(cluster, 1, "t")
    for node_id in (1, 2, 3):
        cluster.kill(node_id)

    cluster.boot(1)
    client = await cluster.client_of(1)  # it agrees on versions
    with pytest.raises(HeadwaterError):
        await client.ask(MetadataRequest(topics=None))
    assert "not served" not in caplog.text

    cluster.boot(2)
    await cluster.until(lambda: cluster.brokers[1].is_open)
    again = await cluster.client_of(1)
    answer = await again.ask(MetadataRequest(topics=None))
    assert [each.name for each in answer.topics] == ["t"]


async def test_a_controller_whose_disk_fails_gives_way_and_comes_back(cluster: Cluster) -> None:
    disk = FaultyFiles(MemoryFiles())
    cluster.files[1] = disk
    first, second, third = await three(cluster)
    periodic = PeriodicTasks(first)
    periodic.start()

    def fault(operation: str, path: Path) -> None:
        if operation in {"sync", "replace"}:
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))

    disk.fault = fault
    done = {ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS}  # the first answer may be lost
    assert await create(cluster, 2, "during") in done
    assert second.is_controller or third.is_controller

    disk.heal()
    await cluster.until(lambda: first.image.topic("during") is not None)
    await cluster.until(lambda: first.image.alive == second.image.alive == [1, 2, 3])
    assert await create(cluster, 1, "after") == ErrorCode.NONE
    await periodic.stop()


async def test_a_broker_alone_gives_nobody_its_vote(cluster: Cluster) -> None:
    first = await cluster.start(1)
    client = await cluster.client_of(1)

    answer = await client.ask(VoteRequest(cluster_id=first.cluster_id))

    assert answer.error_code == ErrorCode.INVALID_REQUEST
    assert first.is_controller


async def test_the_racks_of_brokers_are_known_after_every_start(cluster: Cluster) -> None:
    await cluster.start(1, rack="a")
    await cluster.start(2, rack="b")
    await cluster.start(3)
    client = await cluster.client_of(3)
    before = await client.ask(DescribeClusterRequest())
    await cluster.stop(2)

    await cluster.start(2, rack="c")

    assert [each.rack for each in before.brokers] == ["a", "b", None]
    await cluster.until(lambda: cluster.brokers[3].image.brokers[2].rack == "c")
    after = await client.ask(DescribeClusterRequest())
    assert [each.rack for each in after.brokers] == ["a", "c", None]
    client.close()


async def test_a_request_to_a_broker_that_is_fenced_is_not_waited_for(cluster: Cluster) -> None:
    """One without power closes no connection, and answers nothing."""
    question, asked = DescribeClusterRequest(), asyncio.Event()

    async def never(*_: object) -> None:
        asked.set()
        await asyncio.Event().wait()

    key = question.api_key
    silent = {**SERVED, key: replace(SERVED[key], handler=never)}
    for node_id in (1, 2, 3):
        await cluster.start(node_id, served=silent)
    await cluster.until(lambda: all(vote(e) == [1, 2, 3] for e in cluster.brokers.values()))
    controller = cluster.controller
    assert controller is not None
    gone, other = (each for each in cluster.brokers.values() if each is not controller)
    polling = other.peers.poll(gone.node_id, question, wait_ms=FOR_EVER_MS)
    answer = asyncio.get_running_loop().create_task(polling)
    await asked.wait()

    await controller.metadata.change(lambda: controller.controller.fence_broker(gone.node_id))

    await cluster.until(answer.done)
    assert isinstance(answer.exception(), (ConnectionLost, LogUnavailable))
