"""Transactional producers that live on while their broker is killed, and who had to begin anew."""

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from random import Random
from typing import NamedTuple

from aiokafka import AIOKafkaProducer
from aiokafka import TopicPartition as AiokafkaPartition
from aiokafka.errors import KafkaConnectionError, KafkaError, ProducerFenced

from headwater.core_log.model.log import TopicPartition
from tests.crash.log_contents import PartitionView, read_partition
from tests.crash.plain_client import Wire
from tests.crash.transactional_load import (
    ABORT_SHARE,
    COMMITTED,
    POSITION,
    ConfluentTransactions,
    TransactionLoad,
)

DISASTERS = 8
LIBRDKAFKA = "Confluent"
FENCED_MAX = 4
"""The most that was seen of Apache Kafka 4.3 under such a load, in eight kills of it."""
PARTITIONS = [TopicPartition("moved", index) for index in range(3)]
BETWEEN_S = 2.0
TIMEOUT_MS = 120_000
"""Of transactions: longer than any broker takes to come back on a busy machine."""
LOOK_S = 0.2


class AiokafkaTransactions(TransactionLoad):
    """Through aiokafka, whose transactions are of version 1 as well."""

    def _run(self) -> None:
        asyncio.run(self._write())

    async def _write(self) -> None:
        while not self._is_over.is_set():
            producer = AIOKafkaProducer(
                bootstrap_servers=self._address,
                transactional_id=self.name,
                transaction_timeout_ms=self.timeout_ms,
            )
            try:
                await _until_started(producer)
                while not self._is_over.is_set():
                    await self._write_one(producer)
            except KafkaError as error:
                self.ended_by.append(repr(error))
            finally:
                await _close(producer)
            self.reopened_count += 1

    async def _write_one(self, producer: AIOKafkaProducer) -> None:
        number, counts = self._plan()
        total, place = sum(counts.values()), 0
        await producer.begin_transaction()
        try:
            sent = []
            for partition, count in counts.items():
                for _ in range(count):
                    value = self._value(number, place, total)
                    where = partition.partition
                    sent.append(await producer.send(partition.topic, value, partition=where))
                    place += 1
            await asyncio.gather(*sent)
            position = {AiokafkaPartition(*POSITION): number}
            await producer.send_offsets_to_transaction(position, self.group)
            if self._random.random() < ABORT_SHARE:
                await self._abort(producer, number)
            else:
                await producer.commit_transaction()
                self.outcomes[number] = COMMITTED
        except ProducerFenced:
            raise
        except KafkaError as error:
            try:
                await self._abort(producer, number)
            except AssertionError:  # aiokafka's way to say that it is of no use any more
                raise error from None

    async def _abort(self, producer: AIOKafkaProducer, number: int) -> None:
        await producer.abort_transaction()
        self.outcomes[number] = "aborted"


async def _until_started(producer: AIOKafkaProducer) -> None:
    while True:
        try:
            await producer.start()
            return
        except KafkaConnectionError:
            await asyncio.sleep(0.05)


async def _close(producer: AIOKafkaProducer) -> None:
    with suppress(KafkaError):
        await producer.stop()


class Survivors(NamedTuple):
    """How often producers had to be made anew, and whatever was not as it should be."""

    fenced: dict[str, list[str]]
    """The error that each of them ended with."""
    faults: list[str]

    def count(self, kind: str = "") -> int:
        """How many producers were made anew, of those whose name begins so."""
        return sum(len(each) for name, each in self.fenced.items() if name.startswith(kind))


def live_through(address: str, disaster: Callable[[], None], random: Random) -> Survivors:
    """Four producers, two of librdkafka's and two of aiokafka's, while their broker is killed and
    started again, or whatever else befalls it."""
    host, _, port = address.rpartition(":")
    loads: list[TransactionLoad] = [
        kind(f"{kind.__name__}-{place}", address, PARTITIONS, Random(random.random()))
        for place in range(2)
        for kind in (ConfluentTransactions, AiokafkaTransactions)
    ]
    with Wire((host, int(port))) as wire:
        for name, count in (("moved", len(PARTITIONS)), ("plain", 1)):
            assert wire.create_topic(name, count, {}) == 0
    for load in loads:
        load.timeout_ms = TIMEOUT_MS
        load.start()
    for _ in range(DISASTERS):
        time.sleep(BETWEEN_S * (0.5 + random.random()))
        disaster()
    time.sleep(BETWEEN_S)
    for load in loads:
        load.stop()
    faults = [fault for load in loads for fault in load.faults]
    with Wire((host, int(port))) as wire:
        view = {each: _read_decided(wire, each) for each in PARTITIONS}
    for load in loads:
        faults += load.judge(view, load.number + 1)
    return Survivors({load.name: load.ended_by for load in loads}, faults)


def _read_decided(wire: Wire, partition: TopicPartition) -> PartitionView:
    """Once nothing is open: what stands behind an open transaction nobody can read yet."""
    while (view := read_partition(wire, partition)).stable_offset < view.high_watermark:
        time.sleep(LOOK_S)
    return view
