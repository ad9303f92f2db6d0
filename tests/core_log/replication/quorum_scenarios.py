"""Plays a text scenario on the nodes of a metadata quorum: a line is a step, the indented ones are
the messages that it sends and the nodes that it changes."""

from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Any

from headwater.core_log.replication.quorum import (
    BeginQuorumEpochMessage,
    EndQuorumEpochMessage,
    Message,
    QuorumAnswer,
    QuorumRefusal,
    VoteMessage,
)
from headwater.core_log.replication.voters import NOBODY, ElectionState
from tests.core_log.replication.quorum_world import (
    TIMEOUTS,
    Envelope,
    FetchAnswer,
    FetchRequest,
    MemoryLog,
    Node,
    VoteAnswer,
    World,
)

if TYPE_CHECKING:
    from _typeshed import SupportsLenAndGetItem

Content = Message | FetchRequest | FetchAnswer | VoteAnswer


class NoChance(Random):
    """Every election takes the longest time, 1000 ms; who knows no leader asks node 1."""

    def random(self) -> float:
        return 1.0

    def randint(self, a: int, b: int) -> int:
        return b

    def choice(self, seq: "SupportsLenAndGetItem[Any]") -> Any:
        return seq[0]


def numbers(text: str) -> list[int]:
    return [int(each) for each in text.split(",")]


class QuorumScenario:
    """Steps: `voters NUMBER [observers NUMBER] [led by N]`, `elapse MS [at N,N]`, `elect N` (after
    1500 ms it stands, and all is delivered), `deliver [to N,N]` (with all answers, unless it says
    to whom), `drop`, `cut N`, `heal N`, `append COUNT at N`, `sync N,N`, `fetch N,N`, `replicate`
    (all sync, fetch and are answered), `stop N,N` (power is cut), `start N,N`, `wipe N`,
    `add N,N at N`, `remove N at N`, `resign N`, `snapshot N`, `doubt N` (its disk, when it starts),
    `refused N` (its leader's address refuses its connections, since nobody listens).
    """

    def __init__(self, line: str) -> None:
        words = line.split()
        given = dict(zip(words[::2], words[1::2], strict=False))
        self.sent: list[str] = []
        self.cut: set[int] = set()
        voters = int(given["voters"])
        self.world = World(NoChance(), voters=voters)
        self.world.send = self.send  # type: ignore[method-assign]
        shown = voters + int(given.get("observers", 0))
        self.nodes = [each for each in self.world.nodes.values() if each.node_id <= shown]
        self.before: dict[int, str] = {}
        self.steps: dict[str, Callable[[Node], None]] = {
            "cut": lambda node: self.cut.add(node.node_id),
            "heal": lambda node: self.cut.discard(node.node_id),
            "elect": self.elect,
            "sync": self.world.sync,
            "fetch": self.world.fetch,
            "stop": self.world.cut_power,
            "start": self.world.boot,
            "wipe": self.wipe,
            "doubt": self.doubt,
            "refused": self.refused,
            "resign": self.resign,
            "snapshot": self.take_snapshot,
        }
        if words[-3:-1] == ["led", "by"]:
            for step in (f"elect {words[-1]}", *["replicate"] * 3):
                self.play(step)

    def play(self, line: str) -> list[str]:
        self.sent.clear()
        refused = self.step(line)
        return [*refused, *self.sent, *self.changes()]

    def state(self) -> str:
        self.changes()
        return "\n  ".join(self.before.values())

    def step(self, line: str) -> list[str]:
        match line.split():
            case ["elapse", wait_ms, *at]:
                self.elapse(int(wait_ms), self.named(at[1]) if at else self.nodes)
            case ["deliver", "to", nodes]:
                self.deliver_to(numbers(nodes))
            case ["deliver"]:
                self.deliver()
            case ["drop"]:
                self.world.bag.clear()
            case ["append", count, "at", node]:
                self.append(int(count), self.world.nodes[int(node)])
            case ["replicate"]:
                self.replicate()
            case ["add" | "remove" as change, nodes, "at", leader]:
                return self.change(self.world.nodes[int(leader)], change, self.named(nodes))
            case [step, nodes]:
                for each in self.named(nodes):
                    self.steps[step](each)
            case _:
                raise ValueError(f"unknown step: {line}")
        return []

    def elapse(self, wait_ms: int, nodes: list[Node]) -> None:
        self.world.now_ms += wait_ms
        for each in nodes:
            self.world.tick(each)

    def elect(self, node: Node) -> None:
        self.world.now_ms += TIMEOUTS.fetch_ms
        for _ in ("pre-votes", "votes", "BeginQuorumEpoch"):
            self.world.tick(node)
            self.deliver()

    def append(self, count: int, leader: Node) -> None:
        assert self.world.leads(leader), "only a leader appends"
        epoch = self.world.quorum(leader).epoch
        leader.log.records += [(epoch, next(self.world.numbers)) for _ in range(count)]

    def replicate(self) -> None:
        for each in self.nodes:
            self.world.sync(each)
            self.world.fetch(each)
        self.deliver()

    @staticmethod
    def wipe(node: Node) -> None:
        node.directory += 1
        node.log, node.stored, node.quorum = MemoryLog(), ElectionState(), None

    @staticmethod
    def doubt(node: Node) -> None:
        node.is_doubtful = True

    def refused(self, node: Node) -> None:
        quorum = self.world.quorum(node)
        gone = QuorumAnswer(quorum.leader, quorum.epoch, NOBODY, is_from_leader=False)
        self.world.do(node, quorum.on_fetched(gone, self.world.now_ms))

    def resign(self, node: Node) -> None:
        self.world.do(node, self.world.quorum(node).resign(self.world.now_ms))

    def take_snapshot(self, node: Node) -> None:
        quorum = self.world.quorum(node)
        end_offset = min(quorum.high_watermark, node.log.durable_offset)
        node.log.drop_before(end_offset, quorum.voters.at(end_offset))

    def change(self, leader: Node, change: str, nodes: list[Node]) -> list[str]:
        quorum = self.world.quorum(leader)
        voters, keys = quorum.voters.latest, {each.key for each in nodes}
        wanted = voters | keys if change == "add" else voters - keys
        effects = quorum.propose_voters(wanted, self.world.now_ms)
        if isinstance(effects, QuorumRefusal):
            return [f"refused: {effects.value}"]
        self.world.do(leader, effects)
        return []

    def named(self, nodes: str) -> list[Node]:
        return [self.world.nodes[each] for each in numbers(nodes)]

    def deliver(self) -> None:
        while self.world.bag:
            waiting, self.world.bag = self.world.bag, []
            self.handle(waiting)

    def deliver_to(self, nodes: list[int]) -> None:
        bag = self.world.bag
        waiting = [each for each in bag if each.receiver in nodes]
        self.world.bag = [each for each in bag if each.receiver not in nodes]
        self.handle(waiting)

    def handle(self, waiting: list[Envelope]) -> None:
        for each in waiting:
            if not self.cut & {each.sender, each.receiver}:
                self.world.handle(each)

    def send(self, node: Node, receiver: int, content: Content) -> None:
        envelope = Envelope(node.node_id, receiver, content)
        is_lost = bool(self.cut & {node.node_id, receiver})
        lost = " (lost)" if is_lost else ""
        self.sent.append(f"{node.node_id}->{receiver} {message(content)}{lost}")
        if not is_lost:
            self.world.bag.append(envelope)

    def changes(self) -> list[str]:
        """Returns the nodes that are no more as they were."""
        now = {each.node_id: self.shown(each) for each in self.nodes}
        changed = [each for node_id, each in now.items() if self.before.get(node_id) != each]
        self.before = now
        return changed

    def shown(self, node: Node) -> str:
        quorum, log = node.quorum, node.log
        ends = f"end={log.end_offset} disk={log.durable_offset}"
        if log.start_offset:
            ends = f"start={log.start_offset} {ends}"
        if quorum is None:
            return f"{node.node_id} is down: {ends}"
        return (
            f"{node.node_id} {quorum.role.value} epoch={quorum.epoch} {ends}"
            f" high_watermark={quorum.high_watermark}"
            f" voters={','.join(str(each.node_id) for each in sorted(quorum.voters.latest))}"
            f"{' doubtful' if quorum.is_doubtful else ''}"
        )


def message(content: Content) -> str:
    match content:
        case VoteMessage(ballot):
            kind = "pre-vote" if ballot.is_pre_vote else "vote"
            log = f"last_epoch={ballot.last_epoch} end={ballot.end_offset}"
            return f"Vote {kind} epoch={ballot.epoch} {log}"
        case VoteAnswer(asked, answer):
            kind = "pre-vote" if asked.is_pre_vote else "vote"
            said = "granted" if answer.is_granted else "refused"
            return f"VoteResponse {kind} {said} epoch={answer.epoch} leader={answer.leader}"
        case BeginQuorumEpochMessage(_, epoch):
            return f"BeginQuorumEpoch epoch={epoch}"
        case EndQuorumEpochMessage(_, epoch, successors):
            named = ",".join(str(each.node_id) for each in successors)
            return f"EndQuorumEpoch epoch={epoch} successors={named}"
        case FetchRequest(_, fetch):
            log = f"from={fetch.offset} last_epoch={fetch.last_epoch}"
            return f"Fetch epoch={fetch.epoch} {log}"
        case FetchAnswer():
            return f"FetchResponse {fetched(content)}"


def fetched(reply: FetchAnswer) -> str:
    answer = reply.answer
    said = f"epoch={answer.epoch} leader={answer.leader}"
    if reply.snapshot is not None:
        return f"{said} snapshot={reply.snapshot.end_offset}-{reply.snapshot.epoch}"
    if not answer.is_from_leader:
        return f"{said} not the leader of that epoch"
    if answer.diverging is not None:
        return f"{said} diverging_epoch={answer.diverging.epoch} end={answer.diverging.end_offset}"
    return f"{said} records={len(reply.records)} high_watermark={reply.high_watermark}"
