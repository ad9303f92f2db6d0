"""The client's metadata of a cluster: its brokers, its topics, and the leaders of partitions."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeVar
from uuid import UUID

from headwater.core_log.client.gather import let_go
from headwater.core_log.client.retry_policy import (
    STALE_LEADER,
    NoBroker,
    RetryLoop,
    UnknownTopic,
    check,
    refusal,
)
from headwater.core_log.client.settings import KafkaSettings
from headwater.core_log.foundation.disk_space import HINT
from headwater.core_log.foundation.errors import ConfigError, DiskFull, HeadwaterError, first_names
from headwater.core_log.links.connection import ConnectionLost, RetriableFailure
from headwater.core_log.links.node import Node
from headwater.core_log.links.rpc import Dial, NegotiatedVersions, Rpc
from headwater.core_log.model.log import TopicPartition
from headwater.core_log.protocol.error_codes import ErrorCode
from headwater.core_log.protocol.message import Request
from headwater.core_log.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)

A = TypeVar("A")
T = TypeVar("T")
NO_TOPIC_ID, NO_EPOCH = UUID(int=0), -1
INQUIRY_S = 0.5
"""Wait for one answer about a silent broker, and between two of them."""
DISK_ANSWER_S = 1.0
"""Wait for what one broker says of its disks."""
ROOM_BYTES_MIN = 1 << 20
"""With fewer free bytes a disk that refuses writes counts as full."""


@dataclass(frozen=True, slots=True)
class KnownTopic:
    topic_id: UUID
    leaders: Mapping[int, int]  # partition -> broker, -1 if there is none
    epochs: Mapping[int, int]  # partition -> leader epoch, -1 if the broker did not say
    known_at_s: float


class Cluster:
    """Finds the broker for a request; a caller that reached the wrong one reports it and asks
    again."""

    def __init__(self, settings: KafkaSettings, patience: RetryLoop, dial: Dial) -> None:
        self.settings, self._patience, self._dial = settings, patience, dial
        self._seeds = [self._node(*parse_endpoint(endpoint)) for endpoint in settings.bootstrap]
        self._nodes: dict[int, Node] = {}
        self._topics: dict[str, KnownTopic] = {}
        self._newest: dict[str, KnownTopic] = {}
        """The last known state of each topic, also of those that are asked for again."""
        self._refreshing = asyncio.Lock()
        self._inquiries: dict[Node, asyncio.Task[None]] = {}
        self._first_asked_s: float | None = None
        self._has_answered = False
        self._lost_s: dict[str, float] = {}
        """When brokers closed the connection to somebody who wanted any of them."""

    def _node(self, host: str, port: int) -> Node:
        return Node(
            host, port, dial=self._dial, settings=self.settings, on_overdue=self._on_overdue
        )

    def _on_overdue(self, node: Node, asked: "asyncio.Future[memoryview]") -> None:
        """Asks the others about a broker that is silent: one that stands still keeps its
        connections, and answers only once it is not what it was any more."""
        is_member = any(node.address == each.address for each in self._nodes.values())
        if is_member and len(self._nodes) > 1 and node not in self._inquiries:
            inquiry = asyncio.get_running_loop().create_task(self._inquire(node, asked))
            self._inquiries[node] = inquiry
            inquiry.add_done_callback(lambda _: self._inquiries.pop(node, None))

    async def _inquire(self, silent: Node, asked: "asyncio.Future[memoryview]") -> None:
        """Asks as long as the answer is awaited."""
        while not asked.done():
            if await self.leave_if_gone(silent):
                return
            await asyncio.sleep(INQUIRY_S)

    async def leave_if_gone(self, doubted: Node) -> bool:
        """Disconnects a broker of which another one says that it is not in the cluster; returns
        whether it has said so."""
        for node in self._candidates():
            if node.address == doubted.address:
                continue
            with suppress(RetriableFailure, HeadwaterError, TimeoutError):
                async with asyncio.timeout(INQUIRY_S):
                    said = await node.ask(MetadataRequest(topics=[]))
                live = {(each.host, each.port) for each in said.brokers}
                if (doubted.host, doubted.port) in live:
                    return False
                self._leave(doubted)
                return True
        return False

    def _leave(self, gone: Node) -> None:
        for node in (*self._seeds, *self._nodes.values()):
            if node.address == gone.address:
                node.disconnect()

    def close(self) -> None:
        for inquiry in self._inquiries.values():
            inquiry.cancel()
        for node in (*self._seeds, *self._nodes.values()):
            node.close()

    @property
    def problem(self) -> str:
        """The reason why no broker can be reached; empty if one answers."""
        return self._patience.problem

    async def persist(self, attempt: Callable[[], Awaitable[T]], *, for_ms: int | None = None) -> T:
        """Repeats `attempt` while it raises TryAgain, within limits."""
        return await self._patience.until_done(
            attempt, for_ms=for_ms, find_cause=self._find_full_disk
        )

    async def _find_full_disk(self) -> DiskFull | None:
        """Returns the broker's disk without room that may be why requests fail: most answers have
        no place for a reason."""
        from headwater.core_log.protocol.messages.describe_log_dirs import DescribeLogDirsRequest

        for node in [*self._nodes.values()]:
            try:
                async with asyncio.timeout(DISK_ANSWER_S):  # who is away has no answer
                    said = await node.ask(DescribeLogDirsRequest(topics=()))
            except (RetriableFailure, HeadwaterError, TimeoutError):  # the disk is not known
                continue
            for each in said.results:
                is_refusing = each.error_code == ErrorCode.KAFKA_STORAGE_ERROR
                if is_refusing and 0 <= each.usable_bytes < ROOM_BYTES_MIN:
                    return DiskFull(
                        "the disk of a broker is full",
                        hint=HINT,
                        broker=f"{node.host}:{node.port}",
                        path=each.log_dir,
                        free_bytes=each.usable_bytes,
                    )
        return None

    async def leaders(
        self, partitions: Iterable[TopicPartition]
    ) -> Mapping[Node, list[TopicPartition]]:
        """Returns the partitions by their leader; raises TryAgain if there is none at the
        moment."""
        wanted = list(partitions)
        await self._know({partition.topic for partition in wanted})
        found: dict[Node, list[TopicPartition]] = {}
        for partition in wanted:
            found.setdefault(self._leader(partition), []).append(partition)
        return found

    async def leader(self, partition: TopicPartition) -> Node:
        await self._know({partition.topic})
        return self._leader(partition)

    async def topic(self, name: str) -> KnownTopic:
        """Returns the topic's present metadata from the cluster, not from the cache."""
        self.forget_topic(name)
        await self._know({name})
        return self._topics[name]

    def topic_id(self, name: str) -> UUID:
        known = self._topics.get(name)
        return known.topic_id if known else NO_TOPIC_ID

    def leader_epoch(self, partition: TopicPartition) -> int:
        """Returns the epoch of the leader as far as it is known: a broker that only follows answers
        nobody who takes it for the leader of an earlier one."""
        known = self._topics.get(partition.topic)
        return known.epochs.get(partition.partition, NO_EPOCH) if known else NO_EPOCH

    def topic_name(self, topic_id: UUID) -> str | None:
        names = (name for name, known in self._topics.items() if known.topic_id == topic_id)
        return next(names, None)

    def forget_topic(self, name: str) -> None:
        self._topics.pop(name, None)

    def check(self, code: int, partition: TopicPartition, message: str | None = None) -> None:
        """Raises the error of the answer about `partition`, and forgets a wrong leader."""
        if ErrorCode(code) in STALE_LEADER:
            self.forget_topic(partition.topic)
        check(code, message=message, topic=partition.topic, partition=partition.partition)

    def _leader(self, partition: TopicPartition) -> Node:
        known = self._topics.get(partition.topic)
        leader = known.leaders.get(partition.partition) if known else None
        node = self._nodes.get(leader) if leader is not None else None
        if node is not None:
            return node
        self.forget_topic(partition.topic)  # partitions are added, leaders elected
        facts = {"topic": partition.topic, "partition": partition.partition}
        if leader is None:
            raise UnknownTopic("topic or partition does not exist", **facts)
        raise RetriableFailure("partition has no leader at the moment", **facts)

    async def _know(self, names: set[str]) -> None:
        if self._is_known(names):
            return
        async with self._refreshing:
            if not self._is_known(names):
                for topic in await self._ask_for(sorted(names)):
                    self._learn(topic)

    def _is_known(self, names: set[str]) -> bool:
        oldest_s = asyncio.get_running_loop().time() - self.settings.metadata_age_ms_max / 1000
        known = (self._topics.get(name) for name in names)
        return all(topic is not None and topic.known_at_s > oldest_s for topic in known)

    async def _ask_for(self, names: Sequence[str]) -> Sequence[MetadataResponseTopic]:
        """Asks the others, too, where a broker tells leaders of older epochs than are known: it may
        lag, or be cut off. If all do, a copy of the log was restored."""
        asked, said = await self._ask_any(request_of(names))
        live = self._meet(said)
        if not self._has_older(said.topics):
            return said.topics
        others = [node for node in live if node.address != asked.address]
        answered = 0
        for node in others:
            with suppress(RetriableFailure, HeadwaterError, TimeoutError):
                async with asyncio.timeout(INQUIRY_S):
                    answer = await node.ask(request_of(names))
                self._meet(answer)
                if not self._has_older(answer.topics):
                    return answer.topics
                answered += 1
        if answered == len(others):
            for name in names:
                self._newest.pop(name, None)
        return said.topics

    def _has_older(self, topics: Iterable[MetadataResponseTopic]) -> bool:
        return any(self._newer_than(topic) for topic in topics)

    def _newer_than(self, topic: MetadataResponseTopic) -> Collection[int]:
        """Returns the partitions of which a newer leader is known, as by Kafka's clients
        (KIP-320)."""
        newest = self._newest.get(topic.name or "")
        if newest is None or not newest.topic_id == topic.topic_id != NO_TOPIC_ID:
            return ()
        return [
            part.partition_index
            for part in topic.partitions
            if NO_EPOCH < part.leader_epoch < newest.epochs.get(part.partition_index, NO_EPOCH)
        ]

    def _learn(self, topic: MetadataResponseTopic) -> None:
        if topic.error_code:
            raise refusal(topic.error_code, topic=topic.name)
        assert topic.name is not None, "a topic asked for by name is answered by name"
        leaders = {part.partition_index: part.leader_id for part in topic.partitions}
        epochs = {part.partition_index: part.leader_epoch for part in topic.partitions}
        for index in self._newer_than(topic):
            newest = self._newest[topic.name]
            leaders[index], epochs[index] = newest.leaders[index], newest.epochs[index]
        known_at_s = asyncio.get_running_loop().time()
        known = KnownTopic(topic.topic_id, leaders, epochs, known_at_s)
        self._topics[topic.name] = self._newest[topic.name] = known

    async def metadata(self, topics: Sequence[str] | None) -> MetadataResponse:
        """Returns brokers and the given topics; None means every topic."""
        said = await self.ask_any(request_of(topics))
        self._meet(said)
        return said

    def _meet(self, said: MetadataResponse) -> list[Node]:
        return [self.meet(each.node_id, each.host, each.port) for each in said.brokers]

    async def ask_any(self, request: Request[A], *, version_max: int | None = None) -> A:
        """Asks a connected broker, else the first that answers."""
        return (await self._ask_any(request, version_max))[1]

    async def _ask_any(self, request: Request[A], version_max: int | None = None) -> tuple[Node, A]:
        """Returns the broker with its answer."""
        for node in self._candidates():
            if not node.is_connected:
                break
            with suppress(ConnectionLost):
                return node, await node.ask(request, version_max=version_max)
        node = await self._reach()
        try:
            return node, await node.ask(request, version_max=version_max)
        except ConnectionLost:  # a broker that starts takes connections, and serves nobody
            self._lost_s[node.address] = asyncio.get_running_loop().time()
            raise

    async def _reach(self) -> Node:
        """Connects to a broker, those that closed a connection come last; raises NoBroker with
        every address's error."""
        now_s = asyncio.get_running_loop().time()
        if self._first_asked_s is None:
            self._first_asked_s = now_s
        within_s = self.settings.connect_wait_ms_max / 1000
        left_s = self._first_asked_s + self.settings.first_answer_ms_max / 1000 - now_s
        if not self._has_answered and left_s > 0:
            within_s = min(within_s, max(left_s, HEAD_START_S))
        try:
            node = await first_to_answer(self._candidates(), within_s=within_s)
        except NobodyAnswered as nobody:
            raise NoBroker(tried=str(nobody), is_first=not self._has_answered) from None
        self._has_answered = True
        return node

    async def agreement(self) -> NegotiatedVersions:
        """Returns the versions of some broker and the cluster's finalized features."""
        await self.metadata([])
        return await self._candidates()[0].agreement()

    def meet(self, node_id: int, host: str, port: int) -> Node:
        known = self._nodes.get(node_id)
        if known is None or (known.host, known.port) != (host, port):
            if known is not None:
                known.leave()
            known = self._nodes[node_id] = self._node(host, port)
        return known

    async def nodes(self) -> list[Node]:
        """Returns every broker of the cluster at the moment."""
        said = await self.metadata([])
        return [self._nodes[broker.node_id] for broker in said.brokers]

    def node(self, node_id: int) -> Node | None:
        return self._nodes.get(node_id)

    def _candidates(self) -> list[Node]:
        nodes = [*self._nodes.values(), *self._seeds]
        lost_s = self._lost_s
        return sorted(nodes, key=lambda node: (not node.is_connected, lost_s.get(node.address, 0)))


def request_of(topics: Sequence[str] | None) -> MetadataRequest:
    wanted = None if topics is None else [MetadataRequestTopic(name=name) for name in topics]
    return MetadataRequest(topics=wanted, allow_auto_topic_creation=False)


def parse_endpoint(endpoint: str) -> tuple[str, int]:
    host, _, port = endpoint.rpartition(":")
    if not host or not port.isdigit():
        raise ConfigError("bootstrap is not HOST:PORT", hint="try 127.0.0.1:9092", got=endpoint)
    return host.strip("[]"), int(port)


HEAD_START_S = 0.25
"""Time for one address alone, before the next is tried beside it."""


class NobodyAnswered(Exception):
    """No address answered. Its text has each address with its error."""

    def __init__(self, reasons: dict[str, str]) -> None:
        super().__init__(first_names([f"{address} ({why})" for address, why in reasons.items()]))


async def first_to_answer(nodes: Sequence[Node], *, within_s: float) -> Node:
    """Returns the first broker that connects: an address that drops packets delays no other one."""
    distinct: dict[str, Node] = {}
    for node in nodes:
        distinct.setdefault(node.address, node)
    waiting = deque(distinct.values())
    reasons = dict.fromkeys(distinct, "no answer in time")
    under_way: dict[asyncio.Task[Rpc], Node] = {}
    try:
        async with asyncio.timeout(within_s):
            while waiting or under_way:
                if waiting:
                    node = waiting.popleft()
                    under_way[asyncio.create_task(node.link())] = node
                done, _ = await asyncio.wait(
                    under_way,
                    timeout=HEAD_START_S if waiting else None,
                    return_when=asyncio.FIRST_COMPLETED,
                )
                for task in [each for each in under_way if each in done]:
                    node = under_way.pop(task)
                    try:
                        task.result()
                        return node
                    except ConnectionLost as lost:
                        reasons[node.address] = lost.reason
    except TimeoutError:
        pass
    finally:
        await let_go(*under_way)
    raise NobodyAnswered(reasons)
