"""Several brokers with their files in memory, and one image of the cluster's metadata that reaches
each of them when a test says so."""

from collections.abc import Mapping
from itertools import count
from pathlib import Path
from random import Random
from typing import Any, TypeVar
from uuid import UUID

from headwater.core_log.broker.broker import Broker
from headwater.core_log.broker.handlers.alter_partition import read_proposal
from headwater.core_log.broker.partition import Partition
from headwater.core_log.broker.server import BrokerServer
from headwater.core_log.embedded import InProcessChannel
from headwater.core_log.foundation.errors import LogUnavailable
from headwater.core_log.foundation.settings import BrokerSettings
from headwater.core_log.protocol.frames import read_response_header, request_frame
from headwater.core_log.protocol.message import Request, decode, response_type
from headwater.core_log.protocol.messages.alter_partition import (
    AlteredPartitionResponse,
    AlterPartitionRequest,
    AlterPartitionResponse,
    AlterPartitionTopicResponse,
)
from headwater.core_log.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ReplicaState,
)
from headwater.core_log.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from headwater.core_log.replication.controller import Controller
from headwater.core_log.replication.decisions import Decision, NewTopic, RequestRefusal
from headwater.core_log.replication.elections import change_in_sync
from headwater.core_log.replication.metadata import MetadataImage
from headwater.core_log.replication.metadata_records import MetadataRecord, PartitionRecord
from headwater.core_log.replication.topic_config import TopicConfigs
from headwater.core_log.storage.store import Store
from tests.builders import START_MS, batch
from tests.core_log.broker.in_memory import SERVED
from tests.fakes import FaultyFiles, MemoryFiles, SimulatedClock

TOPIC = "t"
A = TypeVar("A")


class Node:
    """One broker, and how far it has the metadata."""

    def __init__(
        self, node_id: int, clock: SimulatedClock, files: FaultyFiles, **settings: Any
    ) -> None:
        self.node_id, self.clock, self.files = node_id, clock, files
        self.known = 0
        self.links = Links({})
        store = Store.open(
            Path("/data"), files=files, clock=clock, random=Random(node_id), node_id=node_id
        )
        given = BrokerSettings(node_id=node_id, **settings)
        self.broker = Broker(given, store, SERVED, clock=clock, random=Random(node_id))
        self.server = BrokerServer(self.broker, SERVED)
        self.channel = InProcessChannel(self.server, (f"node-{node_id}", 9092))
        self._numbers = count()

    @property
    def partition(self) -> Partition:
        found = self.broker.replicas.replica(TOPIC, 0)
        assert found is not None, "the topic has a replica here"
        return found

    async def ask(
        self,
        request: Request[A],
        version: int | None = None,
        *,
        channel: InProcessChannel | None = None,
    ) -> A:
        """Through the wire's own encoding, there and back."""
        version = request.versions[1] if version is None else version
        number, channel = next(self._numbers), channel or self.channel
        frame = await channel.ask(request_frame(request, version, number, "test"), number)
        _, position = read_response_header(frame, request.api_key, version)
        return decode(response_type(type(request)), frame, version, position)

    async def produce(self, *values: str, acks: int = -1, timeout_ms: int = 60_000) -> Any:
        part = PartitionProduceData(index=0, records=memoryview(batch(*values)))
        topic = TopicProduceData(name=TOPIC, partition_data=[part])
        request = ProduceRequest(acks=acks, timeout_ms=timeout_ms, topic_data=[topic])
        answer = await self.ask(request, 12)
        return answer.responses[0].partition_responses[0]

    async def fetch(
        self,
        offset: int,
        *,
        by: "Node | None" = None,
        leader_epoch: int | None = None,
        last_epoch: int = -1,
        broker_epoch: int | None = None,
        wait_ms: int = 0,
        channel: InProcessChannel | None = None,
        rack: str = "",
        version: int | None = None,
    ) -> Any:
        """As a consumer, or as that replica."""
        state = ReplicaState()
        if by is not None:
            known = by.broker.broker_epoch if broker_epoch is None else broker_epoch
            state = ReplicaState(replica_id=by.node_id, replica_epoch=known)
        part = FetchPartition(
            partition=0,
            fetch_offset=offset,
            current_leader_epoch=self.partition.leader_epoch
            if leader_epoch is None
            else leader_epoch,
            last_fetched_epoch=last_epoch,
            log_start_offset=0,
            partition_max_bytes=1 << 20,
        )
        topic = FetchTopic(topic=TOPIC, topic_id=self.partition.topic_id, partitions=[part])
        request = FetchRequest(
            replica_state=state, max_wait_ms=wait_ms, min_bytes=1, topics=[topic], rack_id=rack
        )
        topics = (await self.ask(request, version, channel=channel)).responses
        return topics[0].partitions[0] if topics else None

    async def close(self) -> None:
        self.channel.close()
        await self.broker.close()


class Replicated:
    """The cluster's decisions, and its nodes, whose links are cut unless `is_linked`."""

    def __init__(
        self,
        nodes: int = 3,
        *,
        is_linked: bool = True,
        racks: Mapping[int, str] | None = None,
        **settings: Any,
    ) -> None:
        self.is_linked, self.settings, self._racks = is_linked, settings, racks or {}
        self.clock = SimulatedClock(START_MS)
        self.image, self._ids = MetadataImage(), count(1)
        self.configs = TopicConfigs({})
        self.controller = Controller(
            self.image, self.configs, new_id=lambda: UUID(int=next(self._ids))
        )
        self.records: list[MetadataRecord] = []
        self.asked: list[AlterPartitionRequest] = []
        self.loses_requests = self.loses_answers = 0
        self.is_told = True
        self.nodes = {
            each: Node(each, self.clock, FaultyFiles(MemoryFiles()), **settings)
            for each in range(1, nodes + 1)
        }
        for node in self.nodes.values():
            self.join(node)

    def commit(self, decision: Decision[A]) -> A:
        self.records += decision.records
        self.image.apply(decision.records, len(self.records))
        return decision.answer

    def join(self, node: Node) -> None:
        node.links = Links(self.nodes, self)
        node.broker.proposals.start()
        if not self.is_linked:
            node.links.cut(*self.nodes)
        node.broker.is_open = True  # without its own opening
        node.broker.peers = node.links  # type: ignore[assignment]
        self.register(node)

    def register(self, node: Node) -> None:
        incarnation = UUID(int=next(self._ids))
        decision = self.controller.register_broker(
            node.node_id,
            incarnation,
            host=f"node-{node.node_id}",
            port=9092,
            rack=self._racks.get(node.node_id),
        )
        node.broker.broker_epoch = self.commit(decision)

    async def create(self, *, replicas: int = 3, **config: str) -> None:
        named = {name.replace("_", "."): value for name, value in config.items()}
        topic = NewTopic(TOPIC, 1, replicas, config=named)
        self.commit(self.controller.create_topics([topic]))
        await self.tell(*self.nodes)

    async def tell(self, *node_ids: int) -> None:
        """Applies everything decided so far on those nodes."""
        for each in node_ids:
            node = self.nodes[each]
            fresh, node.known = self.records[node.known :], len(self.records)
            changes = node.broker.image.apply(fresh, node.known)
            await node.broker.replicas.apply(changes)

    async def alter(self, request: AlterPartitionRequest) -> AlterPartitionResponse:
        """Decides proposals; everybody hears of it if `is_told`."""
        self.asked.append(request)
        if self.loses_requests:
            self.loses_requests -= 1
            raise LogUnavailable("the controller does not answer")
        wanted = {
            (topic.topic_id, each.partition_index): read_proposal(each, 3)
            for topic in request.topics
            for each in topic.partitions
        }
        decided = self.commit(
            self.controller.change_in_sync_sets(request.broker_id, request.broker_epoch, wanted)
        )
        if self.loses_answers:
            self.loses_answers -= 1
            raise LogUnavailable("the controller does not answer")
        if isinstance(decided, RequestRefusal):
            return AlterPartitionResponse(error_code=decided.code)
        if self.is_told:
            await self.tell(*self.nodes)
        topics = [
            AlterPartitionTopicResponse(
                topic_id=topic_id,
                partitions=[
                    AlteredPartitionResponse(
                        partition_index=index, error_code=refused.code if refused else 0
                    )
                ],
            )
            for (topic_id, index), refused in decided.items()
        ]
        return AlterPartitionResponse(topics=topics)

    @property
    def state(self) -> PartitionRecord:
        state = self.image.partition(TOPIC, 0)
        assert state is not None
        return state

    def elect(self, in_sync: tuple[int, ...], *, alive: tuple[int, ...] | None = None) -> None:
        """Makes that the in-sync set; the first of these leads unless the leader is among them."""
        topic = self.image.topic(TOPIC)
        assert topic is not None
        rules = self.controller._rules_of(topic)
        change = change_in_sync(self.state, in_sync, alive or in_sync, rules)
        assert change is not None, "something changes"
        self.commit(Decision(None, [change]))

    async def restart(self, node_id: int) -> Node:
        """Starts the node again with its files; it knows the metadata from its beginning."""
        old = self.nodes[node_id]
        await old.close()
        node = self.nodes[node_id] = Node(node_id, self.clock, old.files, **self.settings)
        self.join(node)
        return node

    async def close(self) -> None:
        for node in self.nodes.values():
            await node.close()


class Links:
    """How a node asks the others: in the same process, unless the link is cut."""

    def __init__(self, nodes: Mapping[int, Node], cluster: "Replicated | None" = None) -> None:
        self._nodes, self._cluster = nodes, cluster
        self._cut: set[int] = set()
        self._channels: dict[InProcessChannel, int] = {}
        self._idle: dict[int, list[InProcessChannel]] = {}

    def cut(self, *node_ids: int) -> None:
        """Also loses what is under way."""
        self._cut |= set(node_ids)
        for channel, node_id in list(self._channels.items()):
            if node_id in node_ids:
                channel.close()
        for node_id in node_ids:
            for channel in self._idle.pop(node_id, []):
                channel.close()

    async def ask_controller(self, request: Any, *, wait_ms: int = 0) -> Any:
        assert self._cluster is not None
        return await self._cluster.alter(request)

    def mend(self) -> None:
        self._cut.clear()

    async def poll(self, node_id: int, request: Request[A], *, wait_ms: int) -> A:
        if node_id in self._cut:
            raise LogUnavailable("the link is cut")
        node = self._nodes[node_id]
        idle = self._idle.setdefault(node_id, [])
        channel = idle.pop() if idle else InProcessChannel(node.server, (f"node-{node_id}", 9092))
        self._channels[channel] = node_id
        try:
            answer = await node.ask(request, channel=channel)
        except BaseException:
            channel.close()
            raise
        finally:
            del self._channels[channel]
        if not channel.is_closed:
            idle.append(channel)
        return answer
