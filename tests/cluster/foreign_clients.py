"""Clients of librdkafka in threads of their own, which remember what they were told: idempotent and
transactional producers, and members of a group."""

import asyncio
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka import TopicPartition as ConfluentPartition

from headwater.core_log.model.log import Isolation, TopicPartition
from tests.crash.idempotent_load import SILENT
from tests.simulation.checker import (
    GroupCommit,
    GroupStart,
    Observed,
    Opened,
    Outcome,
    Poll,
    Sent,
)
from tests.simulation.load import ABORT_SHARE, PAUSE_S

QUIET = {
    "log_level": 0,  # that brokers go away is the point
    "reconnect.backoff.ms": 10,
    "reconnect.backoff.max.ms": 200,
    "retry.backoff.ms": 10,
    "retry.backoff.max.ms": 200,
    "topic.metadata.refresh.interval.ms": 2_000,
    "socket.timeout.ms": 10_000,
}
CALL_S = 10.0
FLUSH_S = 120.0


@dataclass(frozen=True, slots=True)
class ForeignWiring:
    """A client's name, its way to the cluster, and its notes."""

    name: str
    bootstrap: Sequence[str]
    random: Random
    seen: Observed


class ForeignClient:
    """One thread that does one step after another."""

    def __init__(self, wiring: ForeignWiring) -> None:
        self.name, self.seen, self._random = wiring.name, wiring.seen, wiring.random
        self.is_over, self.done_count = False, 0
        self._settings: dict[str, Any] = {**QUIET, "bootstrap.servers": ",".join(wiring.bootstrap)}
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=self.name)

    async def work(self) -> None:
        await asyncio.get_running_loop().run_in_executor(self._thread, self._work)
        self._thread.shutdown()

    def _work(self) -> None:
        while not self.is_over:
            if self.step():
                self.done_count += 1
            time.sleep(self._random.expovariate(1 / PAUSE_S))
        self.end()

    def step(self) -> bool:
        """Whether it has succeeded."""
        raise AssertionError("each kind of client has its own step")

    def end(self) -> None:
        """A client with nothing to say leaves without a word."""


class IdempotentClient(ForeignClient):
    """Appends with acks=all and enable.idempotence."""

    def __init__(self, wiring: ForeignWiring, partitions: Sequence[TopicPartition]) -> None:
        super().__init__(wiring)
        self._partitions, self._number = list(partitions), 0
        self._settings |= {"enable.idempotence": True, "acks": "all", "linger.ms": 2}
        self._producer = Producer(self._settings, logger=SILENT)
        self._answered = 0

    def step(self) -> bool:
        before = self._answered
        for _ in range(self._random.randint(1, 5)):
            self._number += 1
            at, value = self._random.choice(self._partitions), f"{self.name}/{self._number}"
            sent = Sent(self.name, 0, [(at, value)])
            self.seen.sent.append(sent)
            self._producer.produce(
                at.topic,
                value.encode(),
                value.encode(),
                at.partition,
                on_delivery=partial(self._on_answer, sent),
            )
        self._producer.poll(0.05)
        return self._answered > before

    def _on_answer(self, sent: Sent, error: KafkaError | None, message: Any) -> None:
        if error is None:
            self._answered += 1
            note_offset(sent, sent.values[0][1], message)
            sent.outcome = Outcome.COMMITTED

    def end(self) -> None:
        left = self._producer.flush(FLUSH_S)
        if left:
            self.seen.stuck.append(f"{self.name}: {left} records were never answered")


class TransactionalClient(ForeignClient):
    """Transactions through librdkafka, some of them aborted."""

    def __init__(self, wiring: ForeignWiring, partitions: Sequence[TopicPartition]) -> None:
        super().__init__(wiring)
        self._partitions = list(partitions)
        self._settings |= {"transactional.id": self.name, "transaction.timeout.ms": 30_000}
        self._producer: Producer | None = None
        self._instance = self._number = 0
        self.ended_by: list[str] = []
        """Errors after which a producer was of no use any more."""

    def step(self) -> bool:
        try:
            if self._producer is None:
                self._open()
            self._write()
            return True
        except KafkaException as error:
            self.ended_by.append(str(error))
            self._producer = None
            return False

    def _open(self) -> None:
        producer = Producer(self._settings, logger=SILENT)
        self._until_done(lambda: producer.init_transactions(CALL_S))
        self._instance += 1
        self.seen.opened.append(Opened(self.name, self._instance, self.seen.place()))
        self._producer = producer

    def _write(self) -> None:
        producer = self._producer
        assert producer is not None, "a writer opens first"
        sent, is_asked = Sent(self.name, self._instance, []), False
        self.seen.sent.append(sent)
        try:
            producer.begin_transaction()
            count = self._random.randint(1, len(self._partitions))
            for at in self._random.sample(self._partitions, count):
                for _ in range(self._random.randint(1, 3)):
                    self._number += 1
                    value = f"{self.name}/{self._number}"
                    sent.values.append((at, value))
                    producer.produce(
                        at.topic,
                        value.encode(),
                        partition=at.partition,
                        on_delivery=partial(self._on_answer, sent),
                    )
            if self._random.random() < ABORT_SHARE:
                self._until_done(lambda: producer.abort_transaction(CALL_S))
                sent.outcome = Outcome.ABORTED
                return
            sent.commit_at, is_asked = self.seen.place(), True
            self._until_done(lambda: producer.commit_transaction(CALL_S))
            sent.outcome = Outcome.COMMITTED
        except KafkaException as error:
            if not error.args[0].txn_requires_abort():
                if not is_asked:
                    sent.outcome = Outcome.ABORTED
                raise
            self._until_done(lambda: producer.abort_transaction(CALL_S))
            sent.outcome = Outcome.ABORTED

    def _on_answer(self, sent: Sent, error: KafkaError | None, message: Any) -> None:
        if error is None:
            note_offset(sent, message.value().decode(), message)

    def _until_done(self, step: Callable[[], object]) -> None:
        while True:
            try:
                step()
                return
            except KafkaException as error:
                if not error.args[0].retriable() or self.is_over:
                    raise


def note_offset(sent: Sent, value: str, message: Any) -> None:
    """A broker that has a repeated batch already need not remember where: Kafka knows the last five
    of a producer, and librdkafka then names no offset."""
    if message.offset() is not None:
        sent.offsets[value] = message.offset()


class GroupClient(ForeignClient):
    """A member of a group that reads in committed isolation and commits what it has read."""

    def __init__(self, wiring: ForeignWiring, topics: Sequence[str]) -> None:
        """The name is GROUP/MEMBER."""
        super().__init__(wiring)
        self.group, self._assignment = self.name.partition("/")[0], 0
        self._next: dict[TopicPartition, int] = {}
        """Partitions of this assignment that have been read, and where they go on."""
        self._given_at = 0
        self.last_error = ""
        self._consumer = Consumer(
            {
                **self._settings,
                "group.id": self.group,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
                "session.timeout.ms": 6_000,
                "heartbeat.interval.ms": 500,
            },
            logger=SILENT,
        )
        self._consumer.subscribe(list(topics), on_assign=self._on_assign, on_lost=self._on_lost)

    def _on_assign(self, consumer: Consumer, partitions: list[ConfluentPartition]) -> None:
        self._assignment += 1
        self._next.clear()
        self._given_at = self.seen.place()

    def _on_lost(self, consumer: Consumer, partitions: list[ConfluentPartition]) -> None:
        """Somebody else may own them already: nothing of it is committed any more."""
        self._next.clear()

    def step(self) -> bool:
        found: dict[TopicPartition, list[tuple[int, str]]] = {}
        is_refused = False
        for message in self._consumer.consume(200, 0.1):
            told: Any = message
            if told.error() is not None:
                self.last_error = str(told.error())
                is_refused = is_refused or told.topic() is None
            else:
                at = TopicPartition(told.topic(), told.partition())
                found.setdefault(at, []).append((told.offset(), told.value().decode()))
        for at, records in found.items():
            self._note(at, records)
        if is_refused and not self._next:  # perhaps its offsets, which are not asked for again
            self._consumer.assign(self._consumer.assignment())
        if not self._next:
            return False
        asked_at = self.seen.place()
        try:
            taken = self._consumer.commit(
                offsets=[ConfluentPartition(*at, offset) for at, offset in self._next.items()],
                asynchronous=False,
            )
        except KafkaException as error:
            self.last_error = str(error)
            return False  # its coordinator is away, or it is no member any more
        told_at = self.seen.place()
        for each in taken or ():
            if each.error is None and each.offset >= 0:
                at = TopicPartition(each.topic, each.partition)
                self.seen.group_commits.append(
                    GroupCommit(self.group, at, each.offset, asked_at, told_at)
                )
        return bool(taken)

    def _note(self, at: TopicPartition, records: list[tuple[int, str]]) -> None:
        first, end = records[0][0], records[-1][0] + 1
        if at not in self._next:
            self.seen.group_starts.append(GroupStart(self.group, at, first, self._given_at))
        start = self._next.get(at, first)
        reader = f"{self.name}/{self._assignment}"
        self.seen.polls.append(Poll(reader, Isolation.COMMITTED, at, start, records, end))
        self._next[at] = end

    def end(self) -> None:
        self._consumer.close()
