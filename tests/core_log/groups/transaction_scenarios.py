"""Plays a text scenario on one transactional id: a line is a step, indented ones its effects."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from headwater.core_log.groups.transaction_log import (
    UnmarkedTransaction,
    decode_value,
    encode_value,
    recover_transaction,
)
from headwater.core_log.groups.transactions import (
    NO_EPOCH,
    VERSION_1,
    VERSION_2,
    ProducerIdentity,
    StoredTransaction,
    TransactionMetadata,
    TransitionResult,
)
from headwater.core_log.model.log import TopicPartition
from headwater.core_log.protocol.error_codes import ErrorCode
from tests.core_log.groups.scenario_text import play, words_and_options

FRESH_ID = 100


@dataclass
class TransactionScenario:
    """Steps: `init [as ID/EPOCH] [timeout=MS]`, `add ID/EPOCH PARTITION... [v1]`,
    `verify ID/EPOCH PARTITION...`, `commit ID/EPOCH [v1]`, `abort ID/EPOCH [v1]`,
    `fence`, `stored` (the new state is on disk), `marked` (the markers are written),
    `at MS`, `given ID/EPOCH` (as if it had got so far), and two kinds of restart, naming the
    partitions that show a transaction without its end: `crash [PARTITION=ID/EPOCH]...` and
    `stop [PARTITION=ID/EPOCH]...`.
    """

    machine: TransactionMetadata = field(
        default_factory=lambda: TransactionMetadata(StoredTransaction(7, NO_EPOCH, 60_000))
    )
    now_ms: int = 0

    def step(self, line: str) -> list[str]:
        words, options = words_and_options(line)
        version = VERSION_1 if "v1" in words else VERSION_2
        rest = [word for word in words[1:] if word != "v1"]
        effects: list[str] = getattr(self, f"play_{words[0]}")(rest, options, version)
        return effects

    def play_init(self, words: list[str], options: dict[str, str], version: int) -> list[str]:
        verdict = self.machine.init(
            expected=producer(words[1]) if words else None,
            timeout_ms=int(options.get("timeout", 60_000)),
            fresh_producer_id=FRESH_ID,
            now_ms=self.now_ms,
        )
        return self.shown(verdict)

    def play_add(self, words: list[str], options: dict[str, str], version: int) -> list[str]:
        wanted = map(partition, words[1:])
        verdict = self.machine.add(producer(words[0]), wanted, version=version, now_ms=self.now_ms)
        return self.shown(verdict)

    def play_verify(self, words: list[str], options: dict[str, str], version: int) -> list[str]:
        verdicts = self.machine.verify(producer(words[0]), map(partition, words[1:]))
        return [f"{named(each)} {error.name}" for each, error in verdicts.items()]

    def play_commit(self, words: list[str], options: dict[str, str], version: int) -> list[str]:
        return self.end(words[0], version, commit=True)

    def play_abort(self, words: list[str], options: dict[str, str], version: int) -> list[str]:
        return self.end(words[0], version, commit=False)

    def end(self, who: str, version: int, *, commit: bool) -> list[str]:
        verdict = self.machine.end(
            producer(who),
            commit=commit,
            version=version,
            fresh_producer_id=FRESH_ID,
            now_ms=self.now_ms,
        )
        if verdict is ErrorCode.NONE:
            identity = self.machine.current.identity
            return [f"NONE {identity.producer_id}/{identity.epoch}"]
        return self.shown(verdict)

    def play_fence(self, words: list[str], options: dict[str, str], version: int) -> list[str]:
        return self.shown(self.machine.fence(fresh_producer_id=FRESH_ID, now_ms=self.now_ms))

    def play_stored(self, words: list[str], options: dict[str, str], version: int) -> list[str]:
        assert self.machine.pending is not None, "nothing was to be stored"
        self.machine.enter(self.machine.pending)
        current = self.machine.current
        if not current.state.is_prepared:
            return []
        decision = "commit" if current.state.is_commit else "abort"
        return [f"mark {decision} of {who(current)}{list_of(current.partitions)}"]

    def play_marked(self, words: list[str], options: dict[str, str], version: int) -> list[str]:
        self.machine.enter(self.machine.current.complete(self.now_ms))
        return [f"is {state_of(self.machine.current)}"]

    def play_at(self, words: list[str], options: dict[str, str], version: int) -> list[str]:
        self.now_ms = int(words[0])
        return ["is overdue"] if self.machine.is_overdue(self.now_ms) else []

    def play_given(self, words: list[str], options: dict[str, str], version: int) -> list[str]:
        producer_id, epoch = producer(words[0])
        now = replace(self.machine.current, producer_id=producer_id, producer_epoch=epoch)
        self.machine.enter(now)
        return [f"is {state_of(now)}"]

    def play_crash(self, words: list[str], options: dict[str, str], version: int) -> list[str]:
        return self.restart(options, was_clean=False)

    def play_stop(self, words: list[str], options: dict[str, str], version: int) -> list[str]:
        return self.restart(options, was_clean=True)

    def restart(self, options: dict[str, str], *, was_clean: bool) -> list[str]:
        stored = decode_value(encode_value(self.machine.current))
        recovery = recover_transaction(
            stored,
            [UnmarkedTransaction(partition(at), producer(by)) for at, by in options.items()],
            was_clean=was_clean,
            fresh_producer_id=FRESH_ID,
            now_ms=self.now_ms,
        )
        self.machine = TransactionMetadata(stored)
        if recovery.state is not None:
            self.machine.enter_recovered(recovery.state, recovery.earlier)
        lines = [
            f"mark {'commit' if each.commit else 'abort'} of "
            f"{each.producer.producer_id}/{each.producer.epoch}{list_of(each.partitions)}"
            for each in recovery.markers
        ]
        return [*lines, f"is {state_of(self.machine.current)}"]

    def shown(self, verdict: TransitionResult) -> list[str]:
        if isinstance(verdict, ErrorCode):
            return [verdict.name]
        self.machine.pending = verdict
        return [f"store {state_of(verdict)}"]


def producer(text: str) -> ProducerIdentity:
    return ProducerIdentity(*map(int, text.split("/")))


def partition(text: str) -> TopicPartition:
    topic, _, index = text.rpartition("-")
    return TopicPartition(topic, int(index))


def named(each: TopicPartition) -> str:
    return f"{each.topic}-{each.partition}"


def list_of(partitions: Sequence[TopicPartition] | frozenset[TopicPartition]) -> str:
    return "".join(f" {named(each)}" for each in sorted(partitions))


def who(state: StoredTransaction) -> str:
    return f"{state.producer_id}/{state.producer_epoch}"


def state_of(state: StoredTransaction) -> str:
    then = f" then {state.next_producer_id}/0" if state.next_producer_id >= 0 else ""
    return f"{state.state.name} {who(state)}{then}{list_of(state.partitions)}"


def replay(text: str) -> str:
    return play(text, TransactionScenario().step)
