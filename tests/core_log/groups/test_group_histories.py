"""Whatever gets lost, late or silent: a partition has one owner per generation, and nobody waits
for ever.
"""

from dataclasses import dataclass, field
from enum import Enum
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.core_log.groups.group import NEW_MEMBER_JOIN_MS_MAX, Group
from headwater.core_log.groups.membership import (
    NO_MEMBER,
    Effects,
    GroupState,
    JoinAnswer,
    Joining,
    JoinProtocol,
    StoredGroup,
    SyncAnswer,
    Syncing,
    Ticket,
)
from headwater.core_log.protocol.error_codes import ErrorCode

pytestmark = pytest.mark.simulation

PARTITIONS = ("t0", "t1", "t2", "t3")
SESSION_MS, REBALANCE_MS = 10_000, 30_000
HISTORIES = max(50, settings().max_examples)
ACTS = 250


class Doing(Enum):
    NOTHING = 1
    JOINING = 2
    JOINED = 3
    SYNCING = 4
    WORKING = 5


@dataclass
class Consumer:
    """A client by the book: it rejoins when told, and asks again when an answer is lost."""

    name: str
    instance_id: str | None = None
    member_id: str = NO_MEMBER
    doing: Doing = Doing.NOTHING
    joined: JoinAnswer | None = None
    ticket: int = -1
    share: frozenset[str] = frozenset()

    def begin_anew(self, *, keeps_id: bool) -> None:
        self.doing, self.share = Doing.NOTHING, frozenset()
        if not keeps_id:
            self.member_id = NO_MEMBER


@dataclass
class History:
    """One group, its consumers, a disk that takes its time and a network that loses answers."""

    random: Random
    group: Group = field(default_factory=lambda: Group("g"))
    consumers: list[Consumer] = field(default_factory=list)
    stores: list[StoredGroup] = field(default_factory=list)
    waiting: dict[int, Consumer] = field(default_factory=dict)
    answered: set[Ticket] = field(default_factory=set)
    owners: dict[tuple[int, str], str] = field(default_factory=dict)
    last_stored: StoredGroup | None = None
    now_ms: int = 0
    count: int = 0
    is_calm: bool = False

    def next_number(self) -> int:
        self.count += 1
        return self.count

    def act(self) -> None:
        chance = self.random.random()
        if chance < 0.1 and len(self.consumers) < 5 and not self.is_calm:
            instance_id = self.random.choice([None, None, "i1", "i2"])
            running = {each.instance_id for each in self.consumers}
            if instance_id is None or instance_id not in running:
                self.consumers.append(Consumer(f"c{self.next_number()}", instance_id))
        elif chance < 0.15 and self.consumers and not self.is_calm:
            self.consumers.remove(self.random.choice(self.consumers))  # without a word
        elif chance < 0.18 and self.last_stored is not None and not self.is_calm:
            self.restart_broker()
        elif chance < 0.4:
            self.let_time_pass()
        elif chance < 0.6 and self.stores:
            self.finish_store()
        elif self.consumers:
            self.let_act(self.random.choice(self.consumers))

    def let_time_pass(self) -> None:
        self.now_ms += self.random.choice([10, 1_000, 3_000])
        self.carry_out(self.group.on_tick(self.now_ms))

    def finish_store(self) -> None:
        stored = self.stores.pop(0)
        if self.is_calm or self.random.random() < 0.9:
            self.last_stored = stored
            self.carry_out(self.group.on_stored(stored, now_ms=self.now_ms))
        else:
            error = ErrorCode.COORDINATOR_NOT_AVAILABLE
            self.carry_out(self.group.on_store_failed(stored, error, now_ms=self.now_ms))

    def restart_broker(self) -> None:
        assert self.last_stored is not None, "something was stored"
        self.group = Group.restore("g", self.last_stored, now_ms=self.now_ms)
        self.stores.clear()
        for consumer in self.waiting.values():
            consumer.begin_anew(keeps_id=True)
        self.waiting.clear()

    def let_act(self, consumer: Consumer) -> None:
        if consumer.doing is Doing.NOTHING:
            self.join(consumer)
        elif consumer.doing is Doing.JOINED:
            self.sync(consumer)
        elif consumer.doing is Doing.WORKING:
            self.work(consumer)
        elif not self.is_calm and self.random.random() < 0.2:  # it has waited long enough
            self.waiting.pop(consumer.ticket, None)
            consumer.begin_anew(keeps_id=True)

    def join(self, consumer: Consumer) -> None:
        ticket = self.park(consumer, Doing.JOINING)
        joining = Joining(
            member_id=consumer.member_id,
            instance_id=consumer.instance_id,
            client_id=consumer.name,
            client_host="/h",
            protocol_type="consumer",
            protocols=(JoinProtocol("range", b""),),
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
        )
        new_id = f"{consumer.instance_id or consumer.name}-{self.next_number()}"
        self.carry_out(self.group.join(joining, ticket, now_ms=self.now_ms, new_member_id=new_id))

    def sync(self, consumer: Consumer) -> None:
        joined = consumer.joined
        assert joined is not None, "only a member syncs"
        shares: dict[str, bytes] = {}
        if joined.leader == joined.member_id and not joined.skip_assignment:
            names = [member.member_id for member in joined.members]
            for place, name in enumerate(names):
                shares[name] = ",".join(PARTITIONS[place :: len(names)]).encode()
        ticket = self.park(consumer, Doing.SYNCING)
        syncing = Syncing(
            joined.member_id, joined.generation, consumer.instance_id, assignments=shares
        )
        self.carry_out(self.group.sync(syncing, ticket, now_ms=self.now_ms))

    def work(self, consumer: Consumer) -> None:
        assert consumer.joined is not None, "only a member works"
        if not self.is_calm and self.random.random() < 0.05:
            _, effects = self.group.leave(
                [(consumer.member_id, consumer.instance_id)], now_ms=self.now_ms
            )
            self.consumers.remove(consumer)
            self.carry_out(effects)
            return
        error = self.group.heartbeat(
            consumer.member_id,
            consumer.joined.generation,
            instance_id=consumer.instance_id,
            now_ms=self.now_ms,
        )
        if error is not ErrorCode.NONE:
            consumer.begin_anew(keeps_id=error is ErrorCode.REBALANCE_IN_PROGRESS)

    def park(self, consumer: Consumer, doing: Doing) -> int:
        consumer.doing, consumer.ticket = doing, self.next_number()
        self.waiting[consumer.ticket] = consumer
        return consumer.ticket

    def carry_out(self, effects: Effects) -> None:
        if effects.store is not None:
            self.stores.append(effects.store)
        for ticket, answer in effects.answers:
            assert ticket not in self.answered, "a request is answered once"
            self.answered.add(ticket)
            consumer = self.waiting.pop(ticket, None) if isinstance(ticket, int) else None
            if consumer is None:
                continue
            if not self.is_calm and self.random.random() < 0.1:  # lost on its way
                consumer.begin_anew(keeps_id=True)
            elif isinstance(answer, JoinAnswer):
                self.on_joined(consumer, answer)
            else:
                self.on_synced(consumer, answer)

    def on_joined(self, consumer: Consumer, answer: JoinAnswer) -> None:
        consumer.begin_anew(keeps_id=True)
        if answer.error is ErrorCode.NONE:
            consumer.member_id, consumer.joined = answer.member_id, answer
            consumer.doing = Doing.JOINED
        elif answer.error is ErrorCode.MEMBER_ID_REQUIRED:
            consumer.member_id = answer.member_id
        elif answer.error is not ErrorCode.REBALANCE_IN_PROGRESS:
            consumer.member_id = NO_MEMBER

    def on_synced(self, consumer: Consumer, answer: SyncAnswer) -> None:
        if answer.error is not ErrorCode.NONE:
            consumer.begin_anew(keeps_id=answer.error is not ErrorCode.UNKNOWN_MEMBER_ID)
            return
        assert consumer.joined is not None, "only a member syncs"
        consumer.doing = Doing.WORKING
        consumer.share = frozenset(filter(None, answer.assignment.decode().split(",")))
        for partition in consumer.share:
            owner = consumer.instance_id or consumer.member_id
            key = (consumer.joined.generation, partition)
            assert self.owners.setdefault(key, owner) == owner, f"{key} has two owners"

    def calm_down(self) -> None:
        """From here on nothing is lost, and everybody keeps to their heartbeats."""
        self.is_calm = True
        end_ms = self.now_ms + NEW_MEMBER_JOIN_MS_MAX + 5 * REBALANCE_MS
        while self.now_ms < end_ms:
            while self.stores:
                self.finish_store()
            for consumer in list(self.consumers):
                self.let_act(consumer)
            self.now_ms += SESSION_MS // 5
            self.carry_out(self.group.on_tick(self.now_ms))


@settings(max_examples=HISTORIES)
@given(seed=st.integers(0, 2**32))
def test_partitions_have_one_owner_and_members_an_answer(seed: int) -> None:
    history = History(Random(seed))
    for _ in range(ACTS):
        history.act()

    history.calm_down()

    shares = [consumer.share for consumer in history.consumers]
    assert all(consumer.doing is Doing.WORKING for consumer in history.consumers)
    assert sorted(p for share in shares for p in share) == sorted(PARTITIONS if shares else ())
    expected = GroupState.STABLE if shares else GroupState.EMPTY
    assert history.group.state is expected
    assert len(history.group.roster) == len(history.consumers)
