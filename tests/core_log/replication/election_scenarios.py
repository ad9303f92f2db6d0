"""Plays a text scenario on the controller: a line is a step, the indented ones are its answers and
what it changes of one partition and of the brokers."""

from collections.abc import Callable, Mapping
from typing import Any
from uuid import UUID

from headwater.core_log.model.log import TopicPartition
from headwater.core_log.protocol.error_codes import ErrorCode
from headwater.core_log.replication.decisions import NewTopic, RequestRefusal
from headwater.core_log.replication.elections import NO_LOSSES, ElectionType, Losses
from headwater.core_log.replication.leader import UNKNOWN, InSyncProposal
from headwater.core_log.replication.metadata import NO_LEADER
from headwater.core_log.replication.metadata_records import Doubt, PartitionRecord
from tests.core_log.replication.controller_in_memory import Scene

TOPIC = "t"
AT = TopicPartition(TOPIC, 0)
Request = tuple[int, int, InSyncProposal]
"""AlterPartition: the broker, its epoch, and what it proposes."""


def numbers(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(",")))


def shown(brokers: Mapping[int, object] | tuple[int, ...] | list[int]) -> str:
    return ",".join(map(str, brokers)) or "none"


def answered(kind: str, outcome: RequestRefusal | ErrorCode | None) -> list[str]:
    code = outcome.code if isinstance(outcome, RequestRefusal) else outcome or ErrorCode.NONE
    return [f"{kind}Response {code.name}"]


class ElectionScenario:
    """Steps: `brokers NUMBER [replicas A,B] [KEY VALUE]...` (of the topic's configuration),
    `fence N,N`, `register N,N [on a new disk|from an older copy|without lost records|in doubt at
    EPOCH-END]` (fenced), `unfence N,N [of BROKER_EPOCH]`, `start N,N` (both), `propose in_sync A,B
    by N` or `send in_sync A,B by N` (with `unheard A,B`, `epoch N` and `partition_epoch N`),
    `deliver` (whatever was sent, once more each time), `set KEY VALUE`, `elect preferred|unclean`,
    `balance`, `move to A,B`, `cancel the move`, `remove N`, `new controller`, `hear N,N` (by it).
    """

    def __init__(self, line: str) -> None:
        words = line.split()
        config = dict(zip(words[::2], words[1::2], strict=True))
        brokers = int(config.pop("brokers"))
        replicas = numbers(config.pop("replicas", "1,2,3"))
        self.scene = Scene(brokers)
        self.sent: list[Request] = []
        self.before: tuple[str, ...] = ()
        topic = NewTopic(TOPIC, assignments=((0, replicas),), config={**config})
        self.commit(self.scene.controller.create_topics([topic]))
        self.steps: dict[str, Callable[[list[str]], list[str]]] = {
            "propose": lambda words: self.alter(self.request(words)),
            "send": self.send,
            "deliver": lambda _: [line for each in self.sent for line in self.alter(each)],
            "set": self.set,
            "elect": self.elect,
            "balance": self.balance,
            "new": self.begin,
            "hear": self.hear,
            "move": lambda words: self.move(numbers(words[1])),
            "cancel": lambda _: self.move(None),
            "fence": self.fence,
            "register": self.register,
            "unfence": self.unfence,
            "start": lambda words: [*self.register(words), *self.unfence(words)],
            "remove": self.remove,
        }

    def commit(self, decision: Any) -> Any:
        return self.scene.commit(decision)

    @property
    def partition(self) -> PartitionRecord:
        return self.scene.partition(TOPIC)

    def state(self) -> str:
        self.before = self.now()
        return "\n  ".join(self.before)

    def play(self, line: str) -> list[str]:
        step, *words = line.split()
        answers = self.steps[step](words)
        before, self.before = self.before, self.now()
        return [*answers, *(each for each in self.before if each not in before)]

    def set(self, words: list[str]) -> list[str]:
        key, value = words
        config = {**self.scene.topic(TOPIC).config, key: value}
        decision = self.scene.controller.replace_config(TOPIC, config)
        return answered("AlterConfigs", self.commit(decision))

    def elect(self, words: list[str]) -> list[str]:
        kind = ElectionType[words[0].upper()]
        decision = self.scene.controller.elections.elect(kind, [AT])
        return answered("ElectLeaders", self.commit(decision)[AT])

    def balance(self, _: list[str]) -> list[str]:
        self.commit(self.scene.controller.elections.balance())
        return []

    def begin(self, _: list[str]) -> list[str]:
        self.scene.controller.unheard.update(self.scene.image.alive)
        return []

    def hear(self, words: list[str]) -> list[str]:
        self.scene.controller.unheard.difference_update(numbers(words[0]))
        return []

    def fence(self, words: list[str]) -> list[str]:
        for each in numbers(words[0]):
            self.commit(self.scene.controller.fence_broker(each))
        return []

    def register(self, words: list[str]) -> list[str]:
        epochs = []
        for each in numbers(words[0]):
            decision = self.scene.controller.register_broker(
                each,
                UUID(int=next(self.scene.numbers)),
                host="host",
                port=1,
                is_fenced=True,
                losses=self.losses(each, words[1:]),
            )
            epochs.append(f"{each} is registered: broker_epoch={self.commit(decision)}")
        return epochs

    def losses(self, broker: int, how: list[str]) -> Losses:
        at = (self.partition.topic_id, 0)
        match how:
            case ["on", "a", "new", "disk"]:
                return Losses(has_new_disk=True)
            case ["from", "an", "older", "copy"]:
                return Losses(is_older_copy=True)
            case ["without", "lost", "records"]:
                return Losses(certain={at})
            case ["in", "doubt", "at", end]:
                return Losses(doubtful={at: Doubt(broker, *map(int, end.split("-")))})
        assert not how, "a registration with a known loss"
        return NO_LOSSES

    def unfence(self, words: list[str]) -> list[str]:
        answers = []
        for each in numbers(words[0]):
            known = self.scene.image.brokers[each].broker_epoch
            epoch = int(words[2]) if words[1:2] == ["of"] else known
            refused = self.commit(self.scene.controller.unfence_broker(each, epoch))
            answers += [] if refused is None else answered("BrokerHeartbeat", refused)
        return answers

    def remove(self, words: list[str]) -> list[str]:
        decision = self.scene.controller.remove_broker(int(words[0]))
        return answered("UnregisterBroker", self.commit(decision))

    def move(self, replicas: tuple[int, ...] | None) -> list[str]:
        decision = self.scene.controller.reassignments.alter({AT: replicas})
        return answered("AlterPartitionReassignments", self.commit(decision)[AT])

    def send(self, words: list[str]) -> list[str]:
        self.sent.append(self.request(words))
        return []

    def request(self, how: list[str]) -> Request:
        """A leader proposes with what it knows now: epochs, and the lives of those it names."""
        _, brokers, _, by, *rest = how
        said = dict(zip(rest[::2], rest[1::2], strict=True))
        leader, known = int(by), self.scene.image.brokers
        unheard = numbers(said["unheard"]) if "unheard" in said else ()
        named = frozenset() if brokers == "none" else frozenset(numbers(brokers))
        proposal = InSyncProposal(
            named,
            int(said.get("epoch", self.partition.leader_epoch)),
            int(said.get("partition_epoch", self.partition.partition_epoch)),
            {
                each: known[each].broker_epoch if each not in unheard else UNKNOWN
                for each in named - {leader}
                if each in known
            },
        )
        return leader, known[leader].broker_epoch, proposal

    def alter(self, request: Request) -> list[str]:
        broker, broker_epoch, proposal = request
        at = (self.partition.topic_id, 0)
        decision = self.scene.controller.change_in_sync_sets(broker, broker_epoch, {at: proposal})
        outcome = self.commit(decision)
        return answered("AlterPartition", outcome[at] if isinstance(outcome, dict) else outcome)

    def now(self) -> tuple[str, ...]:
        now, brokers = self.partition, self.scene.image.brokers
        leader = "none" if now.leader == NO_LEADER else now.leader
        state = [
            f"leader={leader} epoch={now.leader_epoch}",
            f"in_sync={shown(now.in_sync)} eligible={shown(now.eligible)}",
            f"partition_epoch={now.partition_epoch}",
        ]
        if now.doubtful:
            doubts = (f"{e.broker_id}({e.last_epoch}-{e.end_offset})" for e in now.doubtful)
            state.append(f"doubtful={','.join(doubts)}")
        if now.assignment.is_moving:
            moved = f"adding={shown(now.adding)} removing={shown(now.removing)}"
            state.append(moved)
        fenced = [each for each in sorted(brokers) if brokers[each].is_fenced]
        return (
            f"replicas={shown(now.replicas)}",
            " ".join(state),
            f"live={shown(self.scene.image.alive)} fenced={shown(fenced)}",
        )
