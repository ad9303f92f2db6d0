"""Whatever order messages, crashes, power cuts and elections come in, nothing committed is lost or
changed, and once all are back somebody leads and all are in sync."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path
from random import Random
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis.strategies import integers

from headwater.core_log.foundation.errors import CorruptLog
from headwater.core_log.model.log import TopicPartition
from headwater.core_log.protocol.error_codes import ErrorCode
from headwater.core_log.replication import controller, elections
from headwater.core_log.replication.assignments import Reassignments
from headwater.core_log.replication.controller import Controller
from headwater.core_log.replication.decisions import Decision, NewTopic, RequestRefusal
from headwater.core_log.replication.elections import ElectionRules, change_in_sync, change_of
from headwater.core_log.replication.follower import Follower, FollowerFetch, find_divergence
from headwater.core_log.replication.leader import InSyncProposal, Leader
from headwater.core_log.replication.metadata import NO_LEADER, MetadataImage, Topic
from headwater.core_log.replication.metadata_records import (
    Assignment,
    PartitionChangeRecord,
    PartitionRecord,
)
from headwater.core_log.replication.topic_config import TopicConfigs
from headwater.core_log.storage.leader_epochs import EpochCache
from tests.fakes import MemoryFiles

pytestmark = pytest.mark.simulation

BROKERS, SPARE = (1, 2, 3), (4, 5)
TOPIC, MIN_IN_SYNC = "t", "min.insync.replicas"
AT = TopicPartition(TOPIC, 0)
Record = tuple[int, int]  # its leader epoch, and a number no other record has


class Node:
    """A broker with one replica: a log of which the disk has a part, and a role while it is up."""

    def __init__(self, broker_id: int) -> None:
        self.broker_id, self.broker_epoch = broker_id, 0
        self.log: list[Record] = []
        self.durable, self.is_down, self.has_failed = 0, False, False
        self.start = self.cleaned_to = self.compacted_to = 0
        self.lost_disks: list[list[Record]] = []
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

    def lose(self) -> None:
        """Everything, its disk included."""
        self.truncate(0)
        self.start = self.cleaned_to = self.compacted_to = 0


class Cluster:
    """Brokers of which the first three have the replicas, and a controller; every choice comes
    from one random stream."""

    answers_lost = 0.0
    """The share of fetches whose answer never comes."""

    def __init__(
        self, random: Random, *, min_in_sync: int = 1, brokers: Sequence[int] = BROKERS
    ) -> None:
        ids = map(UUID, (f"{number:032x}" for number in count(1)))
        self.random, self.now_ms = random, 0
        self.steps: Sequence[Callable[[Cluster, Node], None]] = STEPS
        self.image, self.numbers = MetadataImage(), count()
        self.configs = TopicConfigs({})
        self.controller = Controller(
            self.image, self.configs, default_partitions=1, new_id=lambda: next(ids)
        )
        self.nodes = {each: Node(each) for each in brokers}
        self.committed: list[Record] = []
        self.marks: dict[int, tuple[Leader, int]] = {}
        for broker in BROKERS:
            self.register(broker)
        config: dict[str, str | None] = {MIN_IN_SYNC: str(min_in_sync)}
        self.write(self.controller.create_topics([NewTopic(TOPIC, 1, len(BROKERS), config=config)]))
        for broker in brokers[len(BROKERS) :]:
            self.register(broker)
        for node in self.nodes.values():
            self.learn(node)

    def step(self) -> None:
        step = self.random.choice(self.steps)
        step(self, self.nodes[self.random.choice([*self.nodes])])
        self.check()

    def write(self, decision: Decision[Any]) -> None:
        before = self.image.partition(TOPIC, 0)
        self.image.apply(decision.records, self.image.end_offset + len(decision.records))
        settled = () if before is None else before.assignment.origin
        if before is not None and {*self.state.replicas} != {*settled}:
            is_over = not self.state.assignment.is_moving
            is_full = {*self.state.in_sync} == {*self.state.replicas}
            assert is_full or not is_over, "a move ends when all that stay are in sync"

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

    @property
    def min_in_sync(self) -> int:
        return self.configs.min_in_sync(self.image.topic_config(TOPIC))

    def append(self, node: Node) -> None:
        """By whoever takes itself for the leader, rightly or not."""
        if isinstance(node.role, Leader) and not node.has_failed:
            size = self.random.randint(1, 3)
            node.append([(node.role.leader_epoch, next(self.numbers)) for _ in range(size)])
            node.role.on_append(len(node.log))

    def sync(self, node: Node) -> None:
        if node.role is not None and not node.has_failed:
            node.durable = len(node.log)
            node.role.on_durable(node.durable)

    def fetch(self, node: Node) -> None:
        if not isinstance(node.role, Follower) or node.role.leader_id < 0:
            return
        asked, source = node.role.next_fetch(), self.nodes[node.role.leader_id]
        if asked is None or not isinstance(source.role, Leader) or source.has_failed:
            return
        if asked.leader_epoch != source.role.leader_epoch:
            return
        if node.broker_id not in source.role.progress:
            return  # the leader has not heard of the move yet
        diverging = find_divergence(
            source.epochs, last_fetched_epoch=asked.last_fetched_epoch, fetch_offset=asked.offset
        )
        if diverging is not None:
            node.truncate(node.role.on_diverging(diverging, node.epochs))
            node.role.on_truncated(len(node.log), node.last_epoch)
            return
        proposal = source.role.on_follower_fetch(
            node.broker_id,
            asked.offset,
            self.now_ms,
            start_offset=node.start,
            broker_epoch=node.broker_epoch,
            marks=(node.cleaned_to, 0),
            start_least=source.start,
            marks_least=(source.cleaned_to, 0),
        )
        source.outbox += [] if proposal is None else [proposal]
        if self.answers_lost and self.random.random() < self.answers_lost:
            return
        node.start = max(node.start, source.start)
        node.cleaned_to = max(node.cleaned_to, source.cleaned_to)
        node.append(source.log[asked.offset : asked.offset + self.random.randint(0, 4)])
        node.role.on_append(len(node.log), node.last_epoch)
        node.role.on_high_watermark(source.role.high_watermark)
        node.role.on_agreed(source.role.agreed_to(source.cleaned_to))

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
        if node.broker_id not in state.replicas:
            self.drop(node)
            return
        known = -1 if node.role is None else node.role.leader_epoch
        if known == state.leader_epoch:
            if isinstance(node.role, Leader):
                low = self.min_in_sync
                node.role.on_in_sync(
                    state.in_sync,
                    state.partition_epoch,
                    min_in_sync=low,
                    assignment=state.assignment,
                )
                node.role.on_min_in_sync(low)
        elif state.leader == node.broker_id:
            self.reopen(node)
            self.lead(node, state)
        else:
            self.reopen(node)
            self.follow(node, state)

    def drop(self, node: Node) -> None:
        """The replica has moved to another broker."""
        node.lose()
        node.role, node.outbox, node.has_failed = None, [], False

    def fail_disk(self, node: Node) -> None:
        """Of a leader, which goes on only in another epoch."""
        if isinstance(node.role, Leader):
            node.has_failed = True
            node.outbox.append(node.role.resign())

    def reopen(self, node: Node) -> None:
        """The disk has what it had proved."""
        if node.has_failed:
            node.truncate(node.durable)
            node.role, node.has_failed = None, False

    def lead(self, node: Node, state: PartitionRecord) -> None:
        node.epochs.assign(state.leader_epoch, len(node.log))
        if isinstance(node.role, Leader):
            node.role.on_epoch(
                state.leader_epoch,
                state.in_sync,
                state.partition_epoch,
                self.now_ms,
                min_in_sync=self.min_in_sync,
                assignment=state.assignment,
            )
            return
        node.role = Leader(
            broker_id=node.broker_id,
            leader_epoch=state.leader_epoch,
            assignment=state.assignment,
            in_sync=frozenset(state.in_sync),
            partition_epoch=state.partition_epoch,
            end_offset=len(node.log),
            durable_offset=node.durable,
            high_watermark=0 if node.role is None else node.role.high_watermark,
            started_ms=self.now_ms,
            min_in_sync=self.min_in_sync,
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
        node.role, node.outbox, node.is_down, node.has_failed = None, [], True, False

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

    def come_back(self, node: Node) -> None:
        """A fenced broker that was only silent registers again; its replica goes on."""
        if not node.is_down and not self.image.is_alive(node.broker_id):
            self.register(node.broker_id)
            self.learn(node)

    def lose_power(self, node: Node) -> None:
        """Of all brokers at once, before anybody is fenced."""
        for each in self.nodes.values():
            self.crash(each)

    def change_min(self, node: Node) -> None:
        new = str(self.random.randint(1, len(BROKERS)))
        self.write(self.controller.replace_config(TOPIC, {MIN_IN_SYNC: new}))

    def move(self, node: Node) -> None:
        """To other brokers, more or fewer of them, whether or not an earlier move is over."""
        size = self.random.choice((1, 2, 3, 3, 3))
        target = tuple(self.random.sample([*self.nodes], size))
        self.write(self.controller.reassignments.alter({AT: target}))

    def cancel_move(self, node: Node) -> None:
        self.write(self.controller.reassignments.alter({AT: None}))

    def prefer(self, node: Node) -> None:
        """The first replica shall lead."""
        self.write(self.controller.elections.balance())

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
            if mark > known or before is not role:
                self.check_copies(role, mark)
            held = node.log[:mark]
            shared = min(mark, len(self.committed))
            assert held[:shared] == self.committed[:shared], "leaders agree on what is committed"
            self.committed += held[shared:]
        candidates = {state.leader, *state.in_sync, *state.eligible} - {NO_LEADER}
        for node in map(self.nodes.__getitem__, candidates):
            kept = node.log[: min(node.durable, len(self.committed))]
            assert kept == self.committed, "whoever may be elected has all committed on its disk"

    def check_copies(self, leader: Leader, mark: int) -> None:
        """A move does not lower what is promised: as many disks as there were replicas before it,
        or as the topic demands. A disk that was lost since had it."""
        assigned = leader.assignment
        settled = {*assigned.replicas} - {*assigned.adding}
        held = self.nodes[leader.broker_id].log[:mark]
        replicas = [self.nodes[each] for each in assigned.replicas]
        lost = [each for each in replicas if held in [disk[:mark] for disk in each.lost_disks]]
        copies = sum(each.durable >= mark or each in lost for each in replicas)
        news = mark > len(self.committed)
        assert not news or copies >= min(leader.min_in_sync, len(settled)), "enough disks have it"

    def recover(self) -> None:
        """Nothing fails any more."""
        for node in self.nodes.values():
            if node.is_down:
                self.fence(node)
        for node in self.nodes.values():
            self.restart(node)
        for _ in range(60 if len(self.nodes) == len(BROKERS) else 120):
            leader = self.nodes[self.state.leader if self.state.leader != NO_LEADER else 1]
            self.settle(leader)
            if leader.has_failed and isinstance(leader.role, Leader):
                leader.role.resign()  # again, as long as it is not heard
            if isinstance(leader.role, Leader) and leader.role.pending is not None:
                leader.outbox = [leader.role.pending]  # until its outcome is known
                self.propose(leader)
            self.learn(leader)
            self.check()
        assert self.state.leader != NO_LEADER, "somebody leads once all are back"
        assert not self.state.assignment.is_moving, "every move ends"
        assert set(self.state.in_sync) == set(self.state.replicas), "all are in sync in the end"


STEPS: tuple[Callable[[Cluster, Node], None], ...] = (
    *[Cluster.append] * 4,
    *[Cluster.sync] * 6,
    *[Cluster.fetch] * 12,
    *[Cluster.propose] * 3,
    *[Cluster.learn] * 4,
    *[Cluster.settle] * 3,
    *[Cluster.restart] * 4,
    *[Cluster.come_back] * 6,
    *[Cluster.fence] * 3,
    Cluster.tick,
    Cluster.crash,
    Cluster.crash_and_restart,
    Cluster.lose_power,
    Cluster.change_min,
)


WITH_FAILING_DISKS = (*STEPS, *[Cluster.fail_disk] * 3)
WITH_MOVES = (
    *STEPS,
    *[Cluster.settle] * 30,
    *[Cluster.append] * 6,
    *[Cluster.move] * 2,
    Cluster.cancel_move,
    *[Cluster.prefer] * 2,
    Cluster.fail_disk,
)


def play(seed: int, steps: Sequence[Callable[[Cluster, Node], None]] = STEPS) -> None:
    random = Random(seed)
    brokers = (*BROKERS, *SPARE) if Cluster.move in steps else BROKERS
    cluster = Cluster(random, min_in_sync=random.randint(1, len(BROKERS)), brokers=brokers)
    cluster.steps = steps
    for _ in range(400):
        cluster.step()
    cluster.recover()


@pytest.mark.property
@settings(max_examples=150)
@given(seed=integers(0, 1 << 32))
def test_committed_records_stay_through_every_history(seed: int) -> None:
    play(seed)


@pytest.mark.property
@settings(max_examples=100)
@given(seed=integers(0, 1 << 32))
def test_committed_records_stay_although_disks_fail_their_leaders(seed: int) -> None:
    play(seed, WITH_FAILING_DISKS)


@pytest.mark.property
@settings(max_examples=150)
@given(seed=integers(0, 1 << 32))
def test_committed_records_stay_although_partitions_move(seed: int) -> None:
    play(seed, WITH_MOVES)


TRIES_MAX = 400
"""Histories within which a missing rule must be found."""


def is_found(steps: Sequence[Callable[[Cluster, Node], None]] = STEPS) -> bool:
    for seed in range(TRIES_MAX):
        try:
            play(seed, steps)
        except (AssertionError, CorruptLog):
            return True
    return False


def test_a_failed_leader_that_goes_on_in_its_epoch_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def go_on(self: Cluster, node: Node) -> None:
        if isinstance(node.role, Leader):
            node.truncate(node.durable)
            node.epochs.assign(node.role.leader_epoch, len(node.log))
            node.role.end_offset = len(node.log)

    monkeypatch.setattr(Cluster, "fail_disk", go_on)

    assert is_found((*STEPS, *[go_on] * 3))


def test_a_mark_that_moves_below_the_minimum_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Cluster, "min_in_sync", 1)

    assert is_found()


def test_a_fetch_ahead_of_the_disk_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def next_fetch(self: Follower) -> FollowerFetch:
        return FollowerFetch(self.end_offset, self.last_epoch, self.leader_epoch)

    monkeypatch.setattr(Follower, "next_fetch", next_fetch)

    assert is_found()


def test_eligible_replicas_that_outlive_a_full_set_are_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def keep(before: PartitionRecord, *given: Any, **named: Any) -> PartitionChangeRecord | None:
        after = change_in_sync(before, *given, **named)
        if after is None or after.eligible:
            return after
        kept = tuple(each for each in before.eligible if each not in after.in_sync)
        return replace(after, eligible=kept)

    monkeypatch.setattr(controller, "change_in_sync", keep)

    assert is_found()


def test_a_minimum_taken_before_the_set_it_came_with_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    learn = Cluster.learn

    def learn_too_early(self: Cluster, node: Node) -> None:
        if isinstance(node.role, Leader):
            node.role.on_min_in_sync(self.min_in_sync)
        learn(self, node)

    monkeypatch.setattr(Cluster, "learn", learn_too_early)

    assert is_found()


def test_a_move_that_ends_before_all_that_stay_are_in_sync_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def end(assignment: Assignment, in_sync: Collection[int]) -> Assignment:
        return Assignment(assignment.target) if assignment.is_moving else assignment

    monkeypatch.setattr(elections, "_ended", end)

    assert is_found(WITH_MOVES)


def test_a_move_that_promises_only_what_it_will_have_in_the_end_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def enough(self: Assignment, min_in_sync: int) -> int:
        return min(min_in_sync, len(self.target))

    monkeypatch.setattr(Assignment, "enough", enough)

    assert is_found(WITH_MOVES)


def test_a_move_that_gives_up_who_has_everything_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def change(
        self: Reassignments, topic: Topic, before: PartitionRecord, wanted: Assignment
    ) -> PartitionChangeRecord | None:
        rules = ElectionRules(1, allows_unclean=False)
        alive = BROKERS + SPARE
        return change_in_sync(before, before.in_sync, alive, rules, assignment=wanted)

    monkeypatch.setattr(Reassignments, "_change", change)

    assert is_found(WITH_MOVES)


def test_a_set_that_is_taken_without_its_assignment_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    learn = Cluster.learn

    def learn_too_early(self: Cluster, node: Node) -> None:
        if isinstance(node.role, Leader) and node.broker_id in self.state.replicas:
            node.role.assignment = self.state.assignment
            node.role.on_min_in_sync(self.min_in_sync)
        learn(self, node)

    monkeypatch.setattr(Cluster, "learn", learn_too_early)

    assert is_found(WITH_MOVES)


def test_a_replica_that_leaves_within_an_epoch_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def stay(before: PartitionRecord, *given: Any, **named: Any) -> PartitionChangeRecord:
        return change_of(before, *given, **{**named, "is_new_epoch": False})

    monkeypatch.setattr(elections, "change_of", stay)

    assert is_found(WITH_MOVES)
