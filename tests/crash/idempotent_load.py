"""Producers of librdkafka, careful and careless ones: with acks 0, 1, and all and idempotence."""

import logging
import threading
import time
from collections import defaultdict
from collections.abc import Mapping
from random import Random
from typing import Any

from confluent_kafka import KafkaError, Producer

from headwater.core_log.model.log import TopicPartition
from headwater.core_log.records.record_codec import PlainRecord
from tests.crash.log_contents import PartitionView

QUIET = {
    "log_level": 0,  # that the broker goes away is the point
    "metadata.recovery.strategy": "none",  # it comes back where it was
    "reconnect.backoff.ms": 10,
    "reconnect.backoff.max.ms": 50,
    "retry.backoff.ms": 10,
    "retry.backoff.max.ms": 50,
    "linger.ms": 2,
    "topic.metadata.refresh.interval.ms": 10_000,
}
FLUSH_S_MAX = 240
TOMBSTONE_SHARE = 0.1
SILENT = logging.Logger("librdkafka", logging.CRITICAL + 1)
"""Where a client says that the broker is gone, or that a restart has fenced it."""


class ProducerLoad:
    """Numbers its records per partition and remembers which were acknowledged, and where."""

    def __init__(
        self,
        name: str,
        address: str,
        partitions: list[TopicPartition],
        random: Random,
        *,
        acks: str,
        keys: int = 0,
    ) -> None:
        self.name, self.partitions, self.acks = name, partitions, acks
        self._address, self._random, self._keys = address, random, keys
        self.answers: list[tuple[TopicPartition, int, int]] = []
        """Partition, number and offset of everything acknowledged, in that order."""
        self.faults: list[str] = []
        self._sent: dict[TopicPartition, int] = defaultdict(int)
        self._key_of: dict[tuple[TopicPartition, int], bytes] = {}
        self._is_abandoned = False
        self._judged = 0
        self._found: dict[TopicPartition, dict[int, int]] = defaultdict(dict)
        self._newest: dict[TopicPartition, int] = defaultdict(lambda: -1)
        self._read_to: dict[TopicPartition, int] = defaultdict(lambda: -1)
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def abandon(self) -> None:
        """The history has failed: nothing is waited for."""
        self._is_abandoned = True
        self._is_over.set()

    def stop(self) -> None:
        self._is_over.set()
        self._thread.join(FLUSH_S_MAX + 10)

    @property
    def is_idempotent(self) -> bool:
        return self.acks == "all"

    def _run(self) -> None:
        settings: dict[str, Any] = {**QUIET, "bootstrap.servers": self._address, "acks": self.acks}
        if self.is_idempotent:
            settings["enable.idempotence"] = True
        producer = Producer(settings, logger=SILENT)
        while not self._is_over.is_set():
            for _ in range(self._random.randrange(1, 12)):
                self._produce(producer)
            producer.poll(0)
            time.sleep(self._random.random() * 0.1)
        left = producer.flush(0 if self._is_abandoned else FLUSH_S_MAX)
        if left and self.acks != "0":
            self.faults.append(f"{self.name}: {left} records were never answered")

    def _produce(self, producer: Producer) -> None:
        partition = self._random.choice(self.partitions)
        number = self._sent[partition]
        self._sent[partition] += 1
        padding = b"." * self._random.randrange(200)
        key, value = None, b"%s %d %s" % (self.name.encode(), number, padding)
        if self._keys:
            key = b"key-%d" % self._random.randrange(self._keys)
            self._key_of[partition, number] = key
        producer.produce(
            partition.topic,
            None if key and self._random.random() < TOMBSTONE_SHARE else value,
            key,
            partition.partition,
            headers=[("number", b"%d" % number)],
            on_delivery=lambda error, message: self._on_answer(partition, number, error, message),
        )

    def _on_answer(
        self, partition: TopicPartition, number: int, error: KafkaError | None, message: Any
    ) -> None:
        if error is None:
            self.answers.append((partition, number, message.offset()))
        elif self.is_idempotent:
            self.faults.append(f"{self.name}: {partition} refused {number}: {error}")

    @property
    def is_keyed(self) -> bool:
        return self._keys > 0

    def read_again(self) -> None:
        """From here on everything is judged anew, as it is read from the log's start."""
        self._judged = 0
        for kept in (self._found, self._newest, self._read_to):
            kept.clear()

    def judge(self, written: Mapping[TopicPartition, PartitionView], answered: int) -> list[str]:
        """Takes in what was newly read, and holds the first `answered` answers against all of it.

        Nothing acknowledged is missing; from an idempotent producer nothing is twice or astray.
        """
        faults = list[str]()
        for partition in self.partitions:
            if partition in written:
                for batch in written[partition].batches:
                    if not (batch.is_control or batch.is_transactional):
                        faults += self._take(partition, batch.records)
        if answered < 0:  # nothing was promised
            return faults
        judged, self._judged = self._judged, answered
        for partition, number, offset in self.answers[judged:answered]:
            found = self._found[partition].get(number)
            if found is None:
                faults.append(f"{self.name}: {partition} lacks {number}, acknowledged at {offset}")
            elif self.is_idempotent and offset >= 0 and found != offset:
                faults.append(f"{self.name}: {partition} has {number} at {found}, not {offset}")
        return faults

    def _take(self, partition: TopicPartition, records: list[PlainRecord]) -> list[str]:
        mine, found, faults = self.name.encode() + b" ", self._found[partition], list[str]()
        for record in records:
            if record.value is None or not record.value.startswith(mine):
                continue
            number = int(record.value.split(b" ", 2)[1])
            known = found.setdefault(number, record.offset)
            if self.is_idempotent and known != record.offset:
                faults.append(
                    f"{self.name}: {partition} has {number} twice: {known}, {record.offset}"
                )
            if record.offset > self._read_to[partition]:
                self._read_to[partition] = record.offset
                if self.is_idempotent and number < self._newest[partition]:
                    newest = self._newest[partition]
                    faults.append(f"{self.name}: {partition} has {number} after {newest}")
                self._newest[partition] = number
        return faults

    def judge_newest(
        self, view: Mapping[TopicPartition, PartitionView], answered: int
    ) -> list[str]:
        """Compaction may take all but the newest record of each key."""
        newest: dict[tuple[TopicPartition, bytes], int] = {}
        for partition, number, _ in self.answers[:answered]:
            place = partition, self._key_of[partition, number]
            newest[place] = max(number, newest.get(place, -1))
        held: dict[tuple[TopicPartition, bytes], int] = {}
        faults = list[str]()
        for partition in self.partitions:
            for record in view[partition].records:
                assert record.key is not None, "all have a key"
                number = int(record.headers[0][1] or b"")
                if number < held.get((partition, record.key), -1):
                    faults.append(f"{self.name}: {partition} has {number} too late")
                held[partition, record.key] = number
        return faults + [
            f"{self.name}: {partition} lacks the newest of {key!r}, {number}"
            for (partition, key), number in newest.items()
            if held.get((partition, key), -1) < number
        ]
