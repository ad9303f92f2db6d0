"""Five nodes of a metadata quorum, the messages between them, and what goes wrong, from one
seed."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count
from random import Random
from uuid import UUID

from headwater.core_log.replication.follower import EpochEnd, needs_snapshot
from headwater.core_log.replication.quorum import (
    BeginQuorumEpochMessage,
    EndQuorumEpochMessage,
    Message,
    Quorum,
    QuorumAnswer,
    QuorumEffects,
    QuorumFetch,
    QuorumRefusal,
    Role,
    Timeouts,
    VoteMessage,
    VotersChange,
)
from headwater.core_log.replication.voters import (
    NOBODY,
    Ballot,
    BallotAnswer,
    ElectionState,
    ReplicaKey,
    VoterHistory,
    Voters,
    is_majority,
)

NODES = (1, 2, 3, 4, 5)
TIMEOUTS = Timeouts()
Record = tuple[int, object]
"""Its epoch; a number that no other record has, or a control record."""


class MemoryLog:
    """A log of which the disk has a part, and whose beginning a snapshot may replace."""

    def __init__(self) -> None:
        self.start_offset, self.start_epoch = 0, -1
        self.start_voters: Voters = frozenset()
        self.records: list[Record] = []
        self.durable_offset = 0

    @property
    def end_offset(self) -> int:
        return self.start_offset + len(self.records)

    @property
    def last_epoch(self) -> int:
        return self.records[-1][0] if self.records else self.start_epoch

    def end_offset_for(self, epoch: int) -> tuple[int, int]:
        if epoch > self.last_epoch:
            return -1, -1
        known, end = self.start_epoch, self.start_offset
        for each, _ in self.records:
            if each > epoch:
                break
            known, end = each, end + 1
        return (known if 0 <= known <= epoch else epoch), end

    def read(self, offset: int, end_offset: int) -> list[Record]:
        assert offset >= self.start_offset, "a snapshot has taken the place of these records"
        return self.records[offset - self.start_offset : end_offset - self.start_offset]

    def truncate_to(self, offset: int) -> None:
        assert offset >= self.start_offset, "what a snapshot holds is committed"
        del self.records[offset - self.start_offset :]
        self.durable_offset = min(self.durable_offset, offset)

    def sync(self) -> None:
        self.durable_offset = self.end_offset

    def drop_before(self, offset: int, voters: Voters) -> None:
        self.start_epoch = self.records[offset - self.start_offset - 1][0]
        del self.records[: offset - self.start_offset]
        self.start_offset, self.start_voters = offset, voters

    def start_over(self, offset: int, epoch: int, voters: Voters) -> None:
        self.start_offset, self.start_epoch, self.start_voters = offset, epoch, voters
        self.records.clear()
        self.durable_offset = offset


@dataclass(frozen=True)
class FetchRequest:
    sender: ReplicaKey
    fetch: QuorumFetch


@dataclass(frozen=True)
class Snapshot:
    end_offset: int
    epoch: int
    voters: Voters


@dataclass(frozen=True)
class FetchAnswer:
    asked: QuorumFetch
    answer: QuorumAnswer
    records: Sequence[Record] = ()
    high_watermark: int = 0
    is_at_end: bool = False
    snapshot: Snapshot | None = None


@dataclass(frozen=True)
class VoteAnswer:
    asked: Ballot
    answer: BallotAnswer


@dataclass(frozen=True)
class Envelope:
    sender: int
    receiver: int
    content: Message | FetchRequest | FetchAnswer | VoteAnswer


@dataclass
class Node:
    """A node with its disk; `quorum` is gone while it is down."""

    node_id: int
    directory: int = 0
    log: MemoryLog = field(default_factory=MemoryLog)
    stored: ElectionState = field(default_factory=ElectionState)
    first_voters: Voters = frozenset()
    quorum: Quorum | None = None
    is_doubtful: bool = False

    @property
    def key(self) -> ReplicaKey:
        return ReplicaKey(self.node_id, UUID(int=self.node_id * 1000 + self.directory))

    def voters_on_disk(self) -> VoterHistory:
        log = self.log
        history = VoterHistory(self.first_voters)
        if log.start_voters:
            history.start_over(log.start_offset, log.start_voters)
        for offset, (_, content) in enumerate(log.records, log.start_offset):
            if isinstance(content, VotersChange):
                history.add(offset, content.voters)
        return history


class World:
    def __init__(self, random: Random, *, voters: int = 3, fetches_early: bool = False) -> None:
        """`fetches_early`: a fetch does not wait for the disk, which breaks a rule."""
        self.random, self.fetches_early = random, fetches_early
        self.now_ms = 0
        self.numbers = count()
        self.nodes = {each: Node(each) for each in NODES}
        self.bag: list[Envelope] = []
        self.committed: list[Record] = []
        self.leaders: dict[int, ReplicaKey] = {}
        self.changes = 0
        self._begin_with(*NODES[:voters])
        for node in self.nodes.values():
            self.boot(node)

    def _begin_with(self, *nodes: int) -> None:
        """One node knows that it votes before there is any record; several have one."""
        voters = frozenset(self.nodes[each].key for each in nodes)
        if len(nodes) == 1:
            self.nodes[nodes[0]].first_voters = voters
            return
        for each in nodes:
            self.nodes[each].log.records.append((0, VotersChange(voters)))
            self.nodes[each].log.sync()

    def boot(self, node: Node) -> None:
        node.quorum = Quorum(
            node.key,
            node.log,
            stored=node.stored,
            voters=node.voters_on_disk(),
            timeouts=TIMEOUTS,
            jitter_ms=lambda: self.random.randint(0, TIMEOUTS.election_ms),
            now_ms=self.now_ms,
            is_doubtful=node.is_doubtful,
        )

    def do(self, node: Node, effects: QuorumEffects) -> None:
        """Does what the quorum wants, in its order."""
        if effects.store is not None:
            node.stored = effects.store
        if effects.truncate_to is not None:
            node.log.truncate_to(effects.truncate_to)
        quorum = self.quorum(node)
        if effects.role is Role.LEADER:
            known = self.leaders.setdefault(quorum.epoch, node.key)
            assert known == node.key, "an epoch has one leader"
            self.check_held(node, len(self.committed), "a new leader has all that is committed")
        for each in effects.append:
            node.log.records.append((quorum.epoch, each))
        if effects.ends_doubt:
            node.is_doubtful = False
        if effects.append and self.random.random() < 0.3:
            self.sync(node)
        for message in effects.send:
            receiver = message.ballot.voter if isinstance(message, VoteMessage) else message.voter
            self.send(node, receiver.node_id, message)
        if effects.commit_to is not None:
            self.note_commit(node, effects.commit_to)

    def send(
        self, node: Node, receiver: int, content: Message | FetchRequest | FetchAnswer | VoteAnswer
    ) -> None:
        self.bag.append(Envelope(node.node_id, receiver, content))

    @staticmethod
    def quorum(node: Node) -> Quorum:
        assert node.quorum is not None
        return node.quorum

    @staticmethod
    def leads(node: Node) -> bool:
        return node.quorum is not None and node.quorum.is_leader

    def note_commit(self, node: Node, end_offset: int) -> None:
        self.check_held(node, min(end_offset, len(self.committed)), "what is committed stays")
        if end_offset <= len(self.committed):
            return
        log = node.log
        fresh = log.read(len(self.committed), end_offset)
        assert len(fresh) == end_offset - len(self.committed)
        quorum = self.quorum(node)
        assert quorum.role in (Role.LEADER, Role.RESIGNED), "a leader commits first"
        holders = {
            each.key
            for each in self.nodes.values()
            if each.log.durable_offset >= end_offset
            and each.log.read(end_offset - 1, end_offset) in ([], fresh[-1:])
        }
        damaged = {each.key for each in self.nodes.values() if each.is_doubtful}
        wiped = quorum.voters.latest - {each.key for each in self.nodes.values()} | damaged
        majority = is_majority(holders | wiped, quorum.voters.latest)
        assert majority, "a majority has it, or had it, on its disks"
        self.committed += fresh

    def check_held(self, node: Node, end_offset: int, promise: str) -> None:
        log = node.log
        start = log.start_offset
        assert start <= len(self.committed), "a snapshot holds what is committed"
        assert log.end_offset >= end_offset, promise
        assert log.read(start, end_offset) == self.committed[start:end_offset], promise

    # the steps of a history

    def tick(self, node: Node) -> None:
        if node.quorum is not None:
            self.do(node, node.quorum.on_tick(self.now_ms))

    def wait(self, node: Node) -> None:
        self.now_ms += self.random.choice((10, 100, 700))

    def sync(self, node: Node) -> None:
        node.log.sync()
        if node.quorum is not None:
            self.do(node, node.quorum.on_durable(self.now_ms))

    def write(self, node: Node) -> None:
        if node.quorum is not None and node.quorum.is_leader:
            for _ in range(self.random.randint(1, 3)):
                node.log.records.append((node.quorum.epoch, next(self.numbers)))

    def fetch(self, node: Node) -> None:
        if node.quorum is None:
            return
        asked = node.quorum.next_fetch()
        if asked is None and self.fetches_early and not node.quorum.is_leader:
            log, quorum = node.log, node.quorum
            asked = QuorumFetch(quorum.leader, quorum.epoch, log.end_offset, log.last_epoch)
        if asked is not None:
            receiver = asked.leader if asked.leader != NOBODY else self.random.choice(NODES)
            if receiver != node.node_id:
                self.send(node, receiver, FetchRequest(node.key, asked))

    def deliver(self, node: Node) -> None:
        """Some message; it may be lost, or come again later."""
        if not self.bag:
            return
        place = self.random.randrange(len(self.bag))
        envelope = self.bag[place]
        if self.random.random() < 0.85 or len(self.bag) > 60:
            del self.bag[place]
        if self.random.random() > 0.1:
            self.handle(envelope)

    def handle(self, envelope: Envelope) -> None:
        node, content = self.nodes[envelope.receiver], envelope.content
        quorum, now_ms = node.quorum, self.now_ms
        if quorum is None:
            return
        match content:
            case VoteMessage(ballot):
                answer, effects = quorum.on_vote(ballot, now_ms)
                self.do(node, effects)
                self.send(node, envelope.sender, VoteAnswer(ballot, answer))
            case VoteAnswer(asked, granted):
                if asked.candidate == node.key:
                    self.do(node, quorum.on_vote_answer(asked, granted, now_ms))
            case BeginQuorumEpochMessage(_, epoch):
                self.do(node, quorum.on_leader(envelope.sender, epoch, now_ms))
            case EndQuorumEpochMessage(_, epoch, successors):
                self.do(node, quorum.on_end_epoch(epoch, successors, now_ms))
            case FetchRequest():
                self.answer_fetch(node, content)
            case FetchAnswer():
                self.take_answer(node, content)

    def answer_fetch(self, node: Node, request: FetchRequest) -> None:
        quorum, log, asked = self.quorum(node), node.log, request.fetch
        if asked.epoch > quorum.epoch:
            self.do(node, quorum.on_leader(NOBODY, asked.epoch, self.now_ms))
        is_leader = quorum.is_leader and asked.epoch == quorum.epoch
        answer = QuorumAnswer(node.node_id, quorum.epoch, quorum.leader, is_leader)
        reply = FetchAnswer(asked, answer)
        start = EpochEnd(log.start_epoch, log.start_offset)
        if is_leader and needs_snapshot(
            start, last_fetched_epoch=asked.last_epoch, fetch_offset=asked.offset
        ):
            voters = quorum.voters.at(log.start_offset)
            snapshot = Snapshot(log.start_offset, log.start_epoch, voters)
            reply = FetchAnswer(asked, answer, snapshot=snapshot)
        elif is_leader:
            diverging, effects = quorum.on_fetch(
                request.sender, asked.offset, asked.last_epoch, self.now_ms
            )
            self.do(node, effects)
            reply = self.reply(node, asked, diverging)
        self.send(node, request.sender.node_id, reply)

    def reply(self, node: Node, asked: QuorumFetch, diverging: EpochEnd | None) -> FetchAnswer:
        quorum, log = self.quorum(node), node.log
        leads = quorum.is_leader and asked.epoch == quorum.epoch
        answer = QuorumAnswer(node.node_id, quorum.epoch, quorum.leader, leads, diverging)
        if not leads or diverging is not None:
            return FetchAnswer(asked, answer)
        end_offset = min(quorum.sent_to, asked.offset + self.random.randint(0, 4))
        records = log.read(asked.offset, end_offset) if end_offset > asked.offset else ()
        is_at_end = asked.offset >= quorum.sent_to
        return FetchAnswer(asked, answer, records, quorum.high_watermark, is_at_end)

    def take_answer(self, node: Node, reply: FetchAnswer) -> None:
        quorum, log = self.quorum(node), node.log
        is_current = reply.asked == QuorumFetch(
            quorum.leader, quorum.epoch, log.end_offset, log.last_epoch
        )
        if not is_current:  # only what it says about the quorum counts
            said = reply.answer
            stale = QuorumAnswer(NOBODY, said.epoch, said.leader, is_from_leader=False)
            self.do(node, quorum.on_fetched(stale, self.now_ms))
            return
        self.do(node, quorum.on_fetched(reply.answer, self.now_ms))
        is_of_leader = reply.answer.is_from_leader and reply.answer.epoch == quorum.epoch
        if not is_of_leader or reply.answer.diverging is not None:
            return
        if reply.snapshot is not None:
            snapshot = reply.snapshot
            if snapshot.end_offset > quorum.high_watermark:
                log.start_over(snapshot.end_offset, snapshot.epoch, snapshot.voters)
                self.do(node, quorum.on_snapshot(snapshot.end_offset, snapshot.voters))
            return
        voters = [
            (offset, content.voters)
            for offset, (_, content) in enumerate(reply.records, log.end_offset)
            if isinstance(content, VotersChange)
        ]
        log.records += reply.records
        mark, is_at_end = reply.high_watermark, reply.is_at_end
        self.do(node, quorum.on_append(voters, committed_to=mark, is_at_end=is_at_end))

    def change_voters(self, node: Node) -> None:
        quorum = node.quorum
        if quorum is None or not quorum.is_leader:
            return
        voters = quorum.voters.latest
        keys = [each.key for each in self.nodes.values()]
        other = self.random.choice(keys)
        wanted = voters ^ {other}
        outside = [each for each in keys if each not in voters]
        if len(voters) == 1 and len(outside) >= 2:
            wanted = voters | set(self.random.sample(outside, 2))
        gone = sorted(voters - set(keys))
        if gone:  # a wiped directory votes no more
            wanted = voters - {gone[0]}
        if self.random.random() < 0.2:  # one listens somewhere else
            effects = quorum.repeat_voters()
        else:
            effects = quorum.propose_voters(wanted, self.now_ms)
        if not isinstance(effects, QuorumRefusal):
            self.changes += 1
            self.do(node, effects)

    def resign(self, node: Node) -> None:
        if node.quorum is not None and self.random.random() < 0.3:
            self.do(node, node.quorum.resign(self.now_ms))

    def take_snapshot(self, node: Node) -> None:
        quorum, log = node.quorum, node.log
        if quorum is None:
            return
        end_offset = min(quorum.high_watermark, log.durable_offset)
        if end_offset > log.start_offset and self.random.random() < 0.3:
            log.drop_before(end_offset, quorum.voters.at(end_offset))

    def cut_power(self, node: Node) -> None:
        """What was not synced is gone; a process that is killed loses less."""
        node.log.truncate_to(node.log.durable_offset)
        node.quorum = None

    def restart(self, node: Node) -> None:
        if node.quorum is None:
            self.boot(node)

    def cut_power_and_restart(self, node: Node) -> None:
        self.cut_power(node)
        self.restart(node)

    def lose_all_power(self, node: Node) -> None:
        for each in self.nodes.values():
            self.cut_power(each)

    def wipe(self, node: Node) -> None:
        """Its disk is replaced: it comes back as another voter, with nothing; never where that
        alone takes what is committed from a majority."""
        others = [each for each in self.nodes.values() if each is not node]
        whole = {each.key for each in others if self.holds_committed(each)}
        histories = [each.voters_on_disk() for each in self.nodes.values()]
        known = {each for history in histories for each in (history.latest, history.before_latest)}
        is_safe = all(is_majority(whole, each) for each in known if each)
        if is_safe and self.random.random() < 0.3:
            node.directory += 1
            node.log, node.stored = MemoryLog(), ElectionState()
            node.first_voters, node.quorum = frozenset(), None

    def holds_committed(self, node: Node) -> bool:
        log, end_offset = node.log, len(self.committed)
        if log.durable_offset < end_offset:
            return False
        start = log.start_offset
        return log.read(start, end_offset) == self.committed[start:end_offset]

    def settle(self, node: Node) -> None:
        """A while without accidents, so that histories get somewhere."""
        for _ in range(self.random.randint(1, 4)):
            self.round(50)

    def round(self, wait_ms: int) -> None:
        self.now_ms += wait_ms
        for node in self.nodes.values():
            self.tick(node)
            self.sync(node)
            self.fetch(node)
        waiting, self.bag = self.bag, []
        for envelope in waiting:
            self.handle(envelope)

    def step(self) -> None:
        step = self.random.choice(STEPS)
        step(self, self.nodes[self.random.choice(NODES)])

    def recover(self) -> None:
        """Nothing fails any more: where a majority of the voters is left, somebody leads and
        commits within ten seconds."""
        for node in self.nodes.values():
            self.restart(node)
        if not self.can_elect():
            return
        end_ms, before = self.now_ms + 10_000, len(self.committed)
        while self.now_ms < end_ms:
            for node in self.nodes.values():
                self.write(node)
            self.round(50)
        leading = [each for each in self.nodes.values() if self.quorum(each).is_leader]
        assert len(leading) == 1, "somebody leads in the end, and nobody else thinks so"
        assert len(self.committed) > before, "something is committed in the end"

    def can_elect(self) -> bool:
        """Whether every set of voters that any node knows has a majority left."""
        keys = {each.key for each in self.nodes.values()}
        certain = {each.key for each in self.nodes.values() if not each.is_doubtful}
        known = [self.quorum(each).voters.latest for each in self.nodes.values()]
        return any(known) and all(
            is_majority(certain, each) or keys >= each for each in known if each
        )


STEPS: tuple[Callable[[World, Node], None], ...] = (
    *[World.sync] * 6,
    *[World.tick] * 8,
    *[World.wait] * 3,
    *[World.deliver] * 24,
    *[World.fetch] * 10,
    *[World.write] * 3,
    *[World.change_voters] * 6,
    *[World.restart] * 5,
    *[World.settle] * 3,
    World.resign,
    World.take_snapshot,
    World.cut_power,
    World.cut_power_and_restart,
    World.wipe,
)


def play(
    seed: int, *, steps: int = 400, fetches_early: bool = False, voters: Sequence[int] = (1, 3)
) -> World:
    """Plays one history to its end; it begins with one of these numbers of voters."""
    random = Random(seed)
    world = World(random, voters=random.choice(voters), fetches_early=fetches_early)
    for _ in range(steps):
        world.step()
        if world.random.random() < 0.001:
            world.lose_all_power(world.nodes[1])
    world.recover()
    return world
