"""Consumers: a group that commits as it reads, and a counter of offsets that must never go back."""

import asyncio
import threading
from collections import defaultdict
from collections.abc import Callable
from typing import Any

from confluent_kafka import Consumer, KafkaException

from headwater.core_log.client import KafkaLog, KafkaSettings
from headwater.core_log.foundation.errors import HeadwaterError
from headwater.core_log.model.log import TopicPartition
from tests.crash.idempotent_load import QUIET, SILENT
from tests.crash.plain_client import Wire

COUNTED = TopicPartition("plain", 1)
GROUP, COUNTING_GROUP = "readers", "counting"


class GroupLoad:
    """One member of a real group, and one client that only commits."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._attempted = self._committed = 0
        self._positions: dict[TopicPartition, int] = {}
        self._numbers: dict[TopicPartition, int] = defaultdict(lambda: -1)
        self._read_to: dict[TopicPartition, int] = defaultdict(lambda: -1)
        self._is_over = threading.Event()
        self._threads = [
            threading.Thread(target=self._guard, args=(each,), daemon=True)
            for each in (self._count, self._consume)
        ]
        self.consumed_count = 0
        self.faults: list[str] = []

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def abandon(self) -> None:
        """The history has failed: nothing is waited for."""
        self._is_over.set()

    def stop(self) -> None:
        self._is_over.set()
        for thread in self._threads:
            thread.join(60)

    def _guard(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:
            self.faults.append(f"groups: {error!r}")

    def _count(self) -> None:
        asyncio.run(self._commit_numbers())

    async def _commit_numbers(self) -> None:
        log = KafkaLog(KafkaSettings(bootstrap=[self._address], retry_delay_ms_max=50))
        while not self._is_over.is_set():
            self._attempted += 1
            try:
                await log.commit_offsets(COUNTING_GROUP, {COUNTED: self._attempted})
                self._committed = self._attempted
            except HeadwaterError as error:
                self.faults.append(f"groups: an offset is not taken: {error}")
                return
            await asyncio.sleep(0.005)
        await log.close()

    def _consume(self) -> None:
        reader = Consumer(
            {
                **QUIET,
                "bootstrap.servers": self._address,
                "group.id": GROUP,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
                "session.timeout.ms": 6_000,
                "heartbeat.interval.ms": 300,
            },
            logger=SILENT,
        )
        reader.subscribe(["plain", "moved"])
        while not self._is_over.is_set():
            for message in reader.consume(500, 0.1):
                if message.error() is None:
                    self._note(message)
            try:
                taken = reader.commit(asynchronous=False)
            except KafkaException:
                continue  # nothing to commit yet, or the broker is away
            for each in taken or ():
                if each.error is None and each.offset >= 0:
                    self._positions[TopicPartition(each.topic, each.partition)] = each.offset
        reader.close()

    def _note(self, message: Any) -> None:
        partition = TopicPartition(message.topic(), message.partition())
        value: bytes = message.value()
        self.consumed_count += 1
        before, self._read_to[partition] = self._read_to[partition], message.offset()
        if not value.startswith(b"steady "):
            return
        number = int(value.split(b" ", 2)[1])
        if number > self._numbers[partition] + 1:
            self.faults.append(
                f"groups: {partition} goes from {self._numbers[partition]} to {number}, "
                f"from offset {before} to {message.offset()}"
            )
        self._numbers[partition] = max(number, self._numbers[partition])

    def judge(self, wire: Wire) -> list[str]:
        """What was acknowledged as committed is still so, or something newer is."""
        least, positions = self._committed, dict(self._positions)
        code, found = wire.committed_offset(COUNTING_GROUP, *COUNTED)
        faults = list[str]()
        if code or (found < least and least) or found > self._attempted:
            faults.append(f"groups: committed {least} to {self._attempted}, found {found} ({code})")
        for partition, offset in positions.items():
            code, found = wire.committed_offset(GROUP, *partition)
            if code or found < offset:
                faults.append(f"groups: {partition} committed {offset}, found {found} ({code})")
        return faults
