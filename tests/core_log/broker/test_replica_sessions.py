"""A follower names its partitions once, and then those alone that changed (KIP-227)."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from headwater.core_log.broker import replica_fetcher, replica_fetches
from headwater.core_log.broker.replica_fetches import ReplicaSession, ReplicaSessions
from headwater.core_log.embedded import InProcessChannel
from headwater.core_log.protocol.error_codes import ErrorCode
from headwater.core_log.protocol.fetch_frames import FetchFrame
from headwater.core_log.protocol.inter_broker_messages import (
    FULL_FETCH,
    NO_SESSION,
    NO_SESSION_EPOCH,
    SESSION_EPOCH_MAX,
    ReplicaFetchPartition,
    ReplicaFetchRequest,
    ReplicaFetchTopic,
    next_session_epoch,
)
from headwater.core_log.protocol.messages.fetch import ForgottenTopic, ReplicaState
from headwater.core_log.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from headwater.core_log.replication.decisions import NewTopic, TopicReference
from headwater.core_log.replication.leader import Leader
from tests.budget import PATIENCE_S
from tests.builders import batch
from tests.core_log.broker.replicated import Links, Node, Replicated
from tests.core_log.broker.test_replica_fetcher import bytes_of, until

MANY = "many"
PARTITIONS = 4


@pytest.fixture
async def cut() -> AsyncIterator[Replicated]:
    """A leader whose followers ask nothing by themselves."""
    cluster = Replicated(is_linked=False)
    await cluster.create()
    await create_many(cluster)
    yield cluster
    await cluster.close()


async def create_many(cluster: Replicated) -> None:
    cluster.commit(cluster.controller.create_topics([NewTopic(MANY, PARTITIONS, 3)]))
    await cluster.tell(*cluster.nodes)


async def write(node: Node, index: int, value: str) -> None:
    part = PartitionProduceData(index=index, records=memoryview(batch(value)))
    topic = TopicProduceData(name=MANY, partition_data=[part])
    await node.ask(ProduceRequest(acks=1, timeout_ms=60_000, topic_data=[topic]), 12)


def led(cluster: Replicated) -> Node:
    """The node that leads most partitions of the topic."""
    topic = cluster.image.topic(MANY)
    assert topic is not None
    leaders = [each.leader for each in topic.partitions.values()]
    return cluster.nodes[max(cluster.nodes, key=leaders.count)]


def partitions_of(cluster: Replicated, node: Node) -> Sequence[int]:
    topic = cluster.image.topic(MANY)
    assert topic is not None
    return [index for index, each in topic.partitions.items() if each.leader == node.node_id]


class Asker:
    """A follower whose requests a test writes."""

    def __init__(self, cluster: Replicated, leader: Node, follower: Node) -> None:
        self.cluster, self.leader, self.follower = cluster, leader, follower
        self.session = (NO_SESSION, FULL_FETCH)
        self.channel = InProcessChannel(leader.server, ("leader", 9092))

    async def ask(
        self,
        offsets: dict[int, int],
        *,
        forgotten: Sequence[int] = (),
        session: tuple[int, int] | None = None,
        bytes_max: int = 1 << 20,
        high_watermark: int = 1 << 40,
        has_readers: bool = False,
        broker_epoch: int | None = None,
        wait_ms: int = 0,
    ) -> tuple[int, dict[int, int]]:
        """Returns the error, and the bytes of each answered partition; keeps the session."""
        topic = self.cluster.image.topic(MANY)
        assert topic is not None
        known = self.follower.broker.broker_epoch if broker_epoch is None else broker_epoch
        session_id, epoch = self.session if session is None else session
        parts = [
            ReplicaFetchPartition(
                partition=index,
                fetch_offset=offset,
                current_leader_epoch=topic.partitions[index].leader_epoch,
                log_start_offset=0,
                partition_max_bytes=1 << 20,
                high_watermark=high_watermark,
                has_readers=has_readers,
            )
            for index, offset in offsets.items()
        ]
        request = ReplicaFetchRequest(
            replica_state=ReplicaState(replica_id=self.follower.node_id, replica_epoch=known),
            max_wait_ms=wait_ms,
            min_bytes=1,
            max_bytes=bytes_max,
            session_id=session_id,
            session_epoch=epoch,
            topics=[ReplicaFetchTopic(topic_id=topic.topic_id, partitions=parts)] if parts else [],
            forgotten_topics_data=[ForgottenTopic(topic_id=topic.topic_id, partitions=forgotten)]
            if forgotten
            else [],
        )
        answer = await self.leader.ask(request, channel=self.channel)
        if not answer.error_code:
            self.session = (answer.session_id, next_session_epoch(epoch))
        lines = [each for topic in answer.responses for each in topic.partitions]
        return answer.error_code, {each.partition_index: len(each.records or b"") for each in lines}


@pytest.fixture
def asker(cut: Replicated) -> Asker:
    return asker_of(cut)


def asker_of(cluster: Replicated) -> Asker:
    leader = led(cluster)
    follower = next(each for each in cluster.nodes.values() if each is not leader)
    return Asker(cluster, leader, follower)


async def test_a_follower_names_a_quiet_partition_once(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("WAIT_MS", "IDLE_WAIT_MS"):
        monkeypatch.setattr(replica_fetcher, name, 1)
    cluster = Replicated()
    asked = noted_requests(monkeypatch)
    await cluster.create()
    await create_many(cluster)
    leader, *followers = cluster.nodes.values()
    await until(lambda: len(asked) > 20)
    asked.clear()

    for number in range(5):
        await leader.produce(f"value {number}")
    await until(lambda: all(each.partition.high_watermark == 5 for each in followers))

    named = [topic.topic_id for request in asked for topic in request.topics]
    many = cluster.image.topic(MANY)
    assert many is not None
    assert set(named) == {leader.partition.topic_id}
    assert all(request.session_epoch > FULL_FETCH for request in asked)
    await cluster.close()


async def test_a_leader_that_has_no_session_is_asked_for_everything(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = Replicated()
    await cluster.create()
    leader, *followers = cluster.nodes.values()
    await leader.produce("before")
    asked = noted_requests(monkeypatch)
    leader.broker.replicas.sessions = ReplicaSessions()

    await leader.produce("after")
    await until(lambda: all(bytes_of(each) == bytes_of(leader) for each in followers))

    assert any(request.session_epoch == FULL_FETCH for request in asked)
    await cluster.close()


async def test_a_leader_without_sessions_is_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    def begin_none(_: ReplicaSessions, broker: Any, request: FetchFrame) -> ReplicaSession:
        assert request.session_epoch == FULL_FETCH
        return ReplicaSession(broker, request.replica_epoch, NO_SESSION)

    monkeypatch.setattr(ReplicaSessions, "find", begin_none)
    cluster = Replicated()
    await cluster.create()
    leader, *followers = cluster.nodes.values()

    for number in range(3):
        assert (await leader.produce(f"value {number}")).error_code == ErrorCode.NONE

    assert all(bytes_of(each) == bytes_of(leader) for each in followers)
    await cluster.close()


async def test_a_follower_of_an_older_version_has_no_session(asker: Asker) -> None:
    index, *_ = mine = partitions_of(asker.cluster, asker.leader)
    await write(asker.leader, index, "x")
    partition = asker.leader.broker.find_led(MANY, index)
    assert partition is not None

    for _ in range(2):
        offsets = dict.fromkeys(mine, 0)
        error, answered = await asker.ask(offsets, session=(NO_SESSION, NO_SESSION_EPOCH))
        assert error == ErrorCode.NONE
        assert asker.session[0] == NO_SESSION
        assert set(answered) == {index}

    assert not partition._follower_waiters


async def test_a_partition_that_is_not_named_again_is_answered_when_it_changes(
    asker: Asker,
) -> None:
    mine = partitions_of(asker.cluster, asker.leader)
    assert await asker.ask(dict.fromkeys(mine, 0)) == (0, {})
    assert await asker.ask({}) == (0, {})

    await write(asker.leader, mine[-1], "x")

    error, answered = await asker.ask({})
    assert error == 0
    assert set(answered) == {mine[-1]}
    assert answered[mine[-1]] > 0


async def test_a_request_that_waits_is_answered_by_a_partition_that_it_did_not_name(
    asker: Asker,
) -> None:
    mine = partitions_of(asker.cluster, asker.leader)
    await asker.ask(dict.fromkeys(mine, 0))
    waiting = asyncio.ensure_future(asker.ask({}, wait_ms=60_000_000))
    await until(lambda: session_of(asker).fetch is not None)

    await write(asker.leader, mine[0], "x")

    assert set((await waiting)[1]) == {mine[0]}


async def test_a_leader_that_was_asked_before_it_knew_that_it_leads_has_news_at_once() -> None:
    """The follower asks again as before, and so names nothing."""
    cluster = Replicated(is_linked=False)
    await cluster.create()
    cluster.commit(cluster.controller.create_topics([NewTopic(MANY, PARTITIONS, 3)]))
    asker = asker_of(cluster)
    mine = partitions_of(cluster, asker.leader)
    refused = await asker.ask(dict.fromkeys(mine, 0))
    await cluster.tell(*cluster.nodes)
    waiting = asyncio.ensure_future(asker.ask({}, wait_ms=60_000_000))
    await until(lambda: session_of(asker).fetch is not None)

    await write(asker.leader, mine[0], "x")

    assert refused == (0, dict.fromkeys(mine, 0))
    error, answered = await asyncio.wait_for(waiting, PATIENCE_S)
    assert (error, set(answered)) == (0, {mine[0]})
    assert answered[mine[0]] > 0
    await cluster.close()


async def test_a_second_request_of_a_session_ends_the_wait_of_the_first(asker: Asker) -> None:
    await asker.ask(dict.fromkeys(partitions_of(asker.cluster, asker.leader), 0))
    session_id, epoch = asker.session
    waiting = asyncio.ensure_future(asker.ask({}, wait_ms=60_000_000))
    await until(lambda: session_of(asker).fetch is not None)
    asker.channel = InProcessChannel(asker.leader.server, ("leader", 9092))

    assert await asker.ask({}, session=(session_id, epoch + 1)) == (0, {})
    assert await waiting == (0, {})


async def test_a_partition_that_was_opened_anew_is_waited_for_after_a_while(asker: Asker) -> None:
    mine = partitions_of(asker.cluster, asker.leader)
    await asker.ask(dict.fromkeys(mine, 0))
    for each in session_of(asker).partitions.values():
        each.unpark()
    asker.cluster.clock.advance(replica_fetches.WHOLE_LOOK_MS)
    waiting = asyncio.ensure_future(asker.ask({}, wait_ms=60_000_000))
    await until(lambda: session_of(asker).fetch is not None)

    await write(asker.leader, mine[0], "x")

    assert set((await waiting)[1]) == {mine[0]}


async def test_a_session_keeps_no_partition_that_is_led_elsewhere(asker: Asker) -> None:
    cluster, leader = asker.cluster, asker.leader
    index, *_ = mine = partitions_of(cluster, leader)
    await asker.ask(dict.fromkeys(mine, 0), has_readers=True)
    partition = leader.broker.find_led(MANY, index)
    assert partition is not None and partition.has_readers

    cluster.commit(cluster.controller.fence_broker(leader.node_id))
    await cluster.tell(*cluster.nodes)

    assert partition.leader is None
    assert not partition.has_readers  # or its new leader would be asked at each record
    assert all(each.partition is None for each in session_of(asker).partitions.values())


async def test_a_session_keeps_no_deleted_partition(asker: Asker) -> None:
    cluster = asker.cluster
    await asker.ask(dict.fromkeys(partitions_of(cluster, asker.leader), 0))
    topic = cluster.image.topic(MANY)
    assert topic is not None

    cluster.commit(cluster.controller.delete_topics([TopicReference(MANY)]))
    await cluster.tell(*cluster.nodes)

    # a file is closed with its last reference, and only then gives its room back
    assert all(each.partition is None for each in session_of(asker).partitions.values())


def session_of(asker: Asker) -> ReplicaSession:
    return asker.leader.broker.replicas.sessions._by_replica[asker.follower.node_id]


async def test_a_partition_that_is_asked_for_no_more_has_no_news(asker: Asker) -> None:
    first, *others = partitions_of(asker.cluster, asker.leader)
    await asker.ask({first: 0, **dict.fromkeys(others, 0)})
    await asker.ask({}, forgotten=[first])

    await write(asker.leader, first, "x")

    assert await asker.ask({}) == (0, {})
    assert set((await asker.ask({first: 0}))[1]) == {first}


async def test_news_that_found_no_room_come_with_the_next_answers(asker: Asker) -> None:
    mine = partitions_of(asker.cluster, asker.leader)
    assert len(mine) > 1
    for index in mine:
        await write(asker.leader, index, "x")

    named = [dict.fromkeys(mine, 0), *({} for _ in mine[1:])]
    turns = [[*(await asker.ask(each, bytes_max=1))[1]] for each in named]

    assert sorted(turns) == [[index] for index in sorted(mine)]


@pytest.mark.parametrize(
    ("change", "refusal"),
    [
        ({"session": (12_345, 1)}, ErrorCode.FETCH_SESSION_ID_NOT_FOUND),
        ({"session": (1, 5)}, ErrorCode.INVALID_FETCH_SESSION_EPOCH),
        ({"broker_epoch": 999}, ErrorCode.FETCH_SESSION_ID_NOT_FOUND),
    ],
)
async def test_a_session_that_is_not_there_so_is_refused(
    asker: Asker, change: dict[str, Any], refusal: ErrorCode
) -> None:
    await asker.ask(dict.fromkeys(partitions_of(asker.cluster, asker.leader), 0))

    assert await asker.ask({}, **change) == (refusal, {})


async def test_a_broker_that_registered_again_begins_a_session_of_its_own(asker: Asker) -> None:
    mine = partitions_of(asker.cluster, asker.leader)
    await asker.ask(dict.fromkeys(mine, 0))
    asker.cluster.register(asker.follower)
    await asker.cluster.tell(*asker.cluster.nodes)

    assert (await asker.ask({}))[0] == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    asker.session = (NO_SESSION, FULL_FETCH)
    assert (await asker.ask(dict.fromkeys(mine, 0)))[0] == 0


async def test_a_connection_that_ends_takes_its_session_along(asker: Asker) -> None:
    index, *_ = mine = partitions_of(asker.cluster, asker.leader)
    await asker.ask(dict.fromkeys(mine, 0))
    partition = asker.leader.broker.find_led(MANY, index)
    assert partition is not None
    assert partition._follower_waiters

    asker.channel.close()

    assert not partition._follower_waiters
    assert not asker.leader.broker.replicas.sessions._by_replica


async def test_a_follower_that_is_quiet_for_minutes_stays_in_sync(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("WAIT_MS", "IDLE_WAIT_MS"):
        monkeypatch.setattr(replica_fetcher, name, 1)
    cluster = Replicated()
    asked = noted_requests(monkeypatch)
    await cluster.create()
    leader = cluster.nodes[1]
    await leader.produce("x")

    for _ in range(40):
        cluster.clock.advance(3_000)
        asked.clear()
        await until(lambda: len(asked) > 6)  # both followers have asked since
        leader.broker.proposals.look(leader.broker.clock.monotonic_ms())

    assert isinstance(leader.partition.leader, Leader)
    assert leader.partition.leader.in_sync == {1, 2, 3}
    assert not cluster.asked
    await cluster.close()


async def test_a_follower_that_was_dropped_from_the_set_joins_again_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(replica_fetches, "WHOLE_LOOK_MS", 1 << 40)
    cluster = Replicated()
    await cluster.create()
    leader = cluster.nodes[1]
    await leader.produce("x")
    await until(lambda: all(each.partition.high_watermark for each in cluster.nodes.values()))

    cluster.elect((1, 2))
    await cluster.tell(*cluster.nodes)

    await until(lambda: set(cluster.state.in_sync) == {1, 2, 3})
    await cluster.close()


def test_the_epoch_after_the_last_is_the_first() -> None:
    assert next_session_epoch(FULL_FETCH) == 1
    assert next_session_epoch(SESSION_EPOCH_MAX) == 1


def noted_requests(monkeypatch: pytest.MonkeyPatch) -> list[ReplicaFetchRequest]:
    """Returns what followers ask from now on."""
    poll, asked = Links.poll, list[ReplicaFetchRequest]()

    async def noting(links: Links, node_id: int, request: Any, *, wait_ms: int) -> Any:
        asked.append(request)
        return await poll(links, node_id, request, wait_ms=wait_ms)

    monkeypatch.setattr(Links, "poll", noting)
    return asked
