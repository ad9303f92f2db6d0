"""Whatever order messages, crashes and elections come in, nothing committed is lost or changed."""

from collections.abc import Callable
from itertools import count
from pathlib import Path
from random import Random
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis.strategies import integers

from headwater.core_log.protocol.error_codes import ErrorCode
from headwater.core_log.replication.controller import Controller
from headwater.core_log.replication.decisions import Decision, NewTopic, RequestRefusal
from headwater.core_log.replication.metadata import MetadataImage
from headwater.core_log.replication.metadata_records import PartitionRecord
from headwater.core_log.replication.replica import Follower, InSyncProposal, Leader, find_divergence
from headwater.core_log.replication.topic_config import TopicConfigs
from headwater.core_log.storage.leader_epochs import EpochCache
from tests.fakes import MemoryFiles

pytestmark = pytest.mark.simulation

BROKERS = (1, 2, 3)
TOPIC = "t"
Record = tuple[int, int]  # its leader epoch, and a number no other record has


class Node:
    """A broker with one replica: a log of which the disk has a part, and a role while it is up."""

    def __init__(self, broker_id: int) -> None:
        self.broker_id, self.broker_epoch = broker_id, 0
        self.log: list[Record] = []
        self.durable, self.is_down = 0, False
        self.role: Leader | Follower | None = None
        self.outbox: list[InSyncProposal] = []
        self.epochs = EpochCache(MemoryFiles(), Path("/log"))
        self.epochs.log_end = lambda: len(self.log)

    @property
    def last_epoch(self) -> int:
        return self.log[-1][0] if self.log else -1

    def append(self, records: list[Record]) -> None:
        for record in records:
            self.epochs.assign(record[0], len(self.log))
            self.log.append(record)

    def truncate(self, offset: int) -> None:
        del self.log[offset:]
        self.epochs.truncate_to(offset)
        self.durable = min(self.durable, offset)


class Cluster:
    """Three brokers and a controller; every choice comes from one random stream."""

    def __init__(self, random: Random) -> None:
        ids = map(UUID, (f"{number:032x}" for number in count(1)))
        self.random, self.now_ms = random, 0
        self.image, self.numbers = MetadataImage(), count()
        self.controller = Controller(
            self.image, TopicConfigs({}), default_partitions=1, new_id=lambda: next(ids)
        )
        self.nodes = {each: Node(each) for each in BROKERS}
        self.committed: list[Record] = []
        self.marks: dict[int, tuple[Leader, int]] = {}
        for broker in BROKERS:
            self.register(broker)
        self.write(self.controller.create_topics([NewTopic(TOPIC, 1, len(BROKERS))]))
        for node in self.nodes.values():
            self.learn(node)

    def step(self) -> None:
        step = self.random.choice(STEPS)
        step(self, self.nodes[self.random.choice(BROKERS)])
        self.check()

    def write(self, decision: Decision[Any]) -> None:
        self.image.apply(decision.records, self.image.end_offset + len(decision.records))

    def register(self, broker: int) -> None:
        incarnation = UUID(int=next(self.numbers))
        decision = self.controller.register_broker(broker, incarnation, host="h", port=1)
        self.write(decision)
        self.nodes[broker].broker_epoch = decision.answer

    @property
    def state(self) -> PartitionRecord:
        state = self.image.partition(TOPIC, 0)
        assert state is not None
        return state

    def append(self, node: Node) -> None:
        """By whoever takes itself for the leader, rightly or not."""
        if isinstance(node.role, Leader):
            size = self.random.randint(1, 3)
            node.append([(node.role.leader_epoch, next(self.numbers)) for _ in range(size)])
            node.role.on_append(len(node.log))

    def sync(self, node: Node) -> None:
        if node.role is not None:
            node.durable = len(node.log)
            node.role.on_durable(node.durable)

    def fetch(self, node: Node) -> None:
        if not isinstance(node.role, Follower) or node.role.leader_id < 0:
            return
        asked, source = node.role.next_fetch(), self.nodes[node.role.leader_id]
        if asked is None or not isinstance(source.role, Leader):
            return
        if asked.leader_epoch != source.role.leader_epoch:
            return
        diverging = find_divergence(
            source.epochs, last_fetched_epoch=asked.last_fetched_epoch, fetch_offset=asked.offset
        )
        if diverging is not None:
            node.truncate(node.role.on_diverging(diverging, node.epochs))
            node.role.on_truncated(len(node.log), node.last_epoch)
            return
        proposal = source.role.on_follower_fetch(
            node.broker_id, asked.offset, self.now_ms, broker_epoch=node.broker_epoch
        )
        source.outbox += [] if proposal is None else [proposal]
        node.append(source.log[asked.offset : asked.offset + self.random.randint(0, 4)])
        node.role.on_append(len(node.log), node.last_epoch)
        node.role.on_high_watermark(source.role.high_watermark)

    def tick(self, node: Node) -> None:
        self.now_ms += self.random.choice((0, 20_000, 40_000))
        if isinstance(node.role, Leader):
            proposal = node.role.on_tick(self.now_ms)
            node.outbox += [] if proposal is None else [proposal]

    def propose(self, node: Node) -> None:
        """Requests may be repeated much later, and their answers lost."""
        if not node.outbox:
            return
        proposal = self.random.choice(node.outbox)
        if self.random.random() < 0.7:
            node.outbox.remove(proposal)
        decision = self.controller.change_in_sync(node.broker_id, self.state.topic_id, 0, proposal)
        self.write(decision)
        if self.random.random() < 0.3 or not isinstance(node.role, Leader):
            return
        if isinstance(decision.answer, RequestRefusal):
            if decision.answer.code is ErrorCode.INELIGIBLE_REPLICA:
                node.role.on_refused(proposal)
        else:
            self.learn(node)

    def learn(self, node: Node) -> None:
        """Metadata reaches each broker in its own time."""
        state = self.state
        if not self.image.is_alive(node.broker_id) or node.is_down:
            return
        known = -1 if node.role is None else node.role.leader_epoch
        if known == state.leader_epoch:
            if isinstance(node.role, Leader):
                node.role.on_in_sync(state.in_sync, state.partition_epoch)
        elif state.leader == node.broker_id:
            self.lead(node, state)
        else:
            self.follow(node, state)

    def lead(self, node: Node, state: PartitionRecord) -> None:
        node.epochs.assign(state.leader_epoch, len(node.log))
        if isinstance(node.role, Leader):
            node.role.on_epoch(
                state.leader_epoch, state.in_sync, state.partition_epoch, self.now_ms
            )
            return
        node.role = Leader(
            broker_id=node.broker_id,
            leader_epoch=state.leader_epoch,
            replicas=state.replicas,
            in_sync=frozenset(state.in_sync),
            partition_epoch=state.partition_epoch,
            end_offset=len(node.log),
            durable_offset=node.durable,
            high_watermark=0 if node.role is None else node.role.high_watermark,
            started_ms=self.now_ms,
        )

    def follow(self, node: Node, state: PartitionRecord) -> None:
        if isinstance(node.role, Follower):
            node.role.on_leader(state.leader, state.leader_epoch)
            return
        node.role = Follower(
            broker_id=node.broker_id,
            leader_id=state.leader,
            leader_epoch=state.leader_epoch,
            end_offset=len(node.log),
            durable_offset=node.durable,
            high_watermark=0 if node.role is None else node.role.high_watermark,
            last_epoch=node.last_epoch,
        )

    def crash(self, node: Node) -> None:
        """The power goes: what was not synced is lost."""
        node.truncate(node.durable)
        node.role, node.outbox, node.is_down = None, [], True

    def restart(self, node: Node) -> None:
        """Also of a broker that was only thought dead."""
        if node.is_down or not self.image.is_alive(node.broker_id):
            self.crash(node)
            node.is_down = False
            self.register(node.broker_id)
            self.learn(node)

    def crash_and_restart(self, node: Node) -> None:
        """Before anybody has noticed."""
        self.crash(node)
        self.restart(node)

    def fence(self, node: Node) -> None:
        """The controller has not heard of it for a while, which does not mean that it is down."""
        self.write(self.controller.fence_broker(node.broker_id))

    def settle(self, node: Node) -> None:
        """A while without accidents, so that histories get somewhere."""
        for each in self.nodes.values():
            self.learn(each)
        for _ in range(self.random.randint(1, 3)):
            for each in self.nodes.values():
                self.sync(each)
                self.fetch(each)
        self.propose(node)

    def check(self) -> None:
        state = self.state
        for node in self.nodes.values():
            role = node.role
            if not isinstance(role, Leader):
                continue
            mark, (before, known) = role.high_watermark, self.marks.get(node.broker_id, (role, 0))
            assert before is not role or mark >= known, "the high watermark never retreats"
            self.marks[node.broker_id] = (role, mark)
            if role.leader_epoch == state.leader_epoch:
                durable = [self.nodes[each].durable for each in state.in_sync]
                assert mark <= min(durable), "what is committed is on every disk in sync"
            held = node.log[:mark]
            shared = min(mark, len(self.committed))
            assert held[:shared] == self.committed[:shared], "leaders agree on what is committed"
            self.committed += held[shared:]
        if state.leader >= 0:
            kept = self.nodes[state.leader].log[: len(self.committed)]
            assert kept == self.committed, "whoever is elected has everything committed"


STEPS: tuple[Callable[[Cluster, Node], None], ...] = (
    *[Cluster.append] * 4,
    *[Cluster.sync] * 6,
    *[Cluster.fetch] * 12,
    *[Cluster.propose] * 3,
    *[Cluster.learn] * 4,
    *[Cluster.settle] * 3,
    *[Cluster.restart] * 4,
    Cluster.tick,
    Cluster.crash,
    Cluster.crash_and_restart,
    Cluster.fence,
)


@pytest.mark.property
@settings(max_examples=150)
@given(seed=integers(0, 1 << 32))
def test_committed_records_stay_through_every_history(seed: int) -> None:
    cluster = Cluster(Random(seed))

    for _ in range(400):
        cluster.step()
