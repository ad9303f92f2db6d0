"""Writers of transactions over several partitions and a group's offsets: ours, and librdkafka's."""

import asyncio
import threading
import time
from abc import abstractmethod
from collections import defaultdict
from collections.abc import Callable, Mapping
from random import Random

from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka import TopicPartition as ConfluentPartition

from headwater.core_log.client import KafkaLog, KafkaSettings
from headwater.core_log.client.writer import KafkaWriter
from headwater.core_log.foundation.errors import HeadwaterError
from headwater.core_log.model.log import TopicPartition
from headwater.core_log.records.batch_header import Batch
from headwater.core_log.records.record_codec import PlainRecord, encode_batch
from tests.crash.idempotent_load import QUIET, SILENT
from tests.crash.log_contents import PartitionView
from tests.crash.plain_client import Wire

POSITION = TopicPartition("plain", 0)
"""Where the groups of these writers pretend to read."""
ABORTED, COMMITTED, UNKNOWN = "aborted", "committed", "unknown"
ABORT_SHARE = 0.15


class TransactionLoad:
    """Numbers its transactions; each record says how many its transaction has in all."""

    timeout_ms = 30_000
    """Of a transaction that nobody ends."""

    def __init__(
        self, name: str, address: str, partitions: list[TopicPartition], random: Random
    ) -> None:
        self.name, self.partitions = name, partitions
        self._address, self._random = address, random
        self.outcomes: dict[int, str] = {}
        self.faults: list[str] = []
        self.reopened_count = 0
        self.ended_by: list[str] = []
        """Errors after which a producer was of no use any more."""
        self._number = 0
        self._judged = 1
        self._found: dict[int, tuple[list[int], int]] = {}
        """By number: the places read in committed isolation, and how many there should be."""
        self._newest: dict[TopicPartition, int] = defaultdict(int)
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._guard, daemon=True)

    @property
    def group(self) -> str:
        return f"{self.name}-group"

    def start(self) -> None:
        self._thread.start()

    def abandon(self) -> None:
        """The history has failed: nothing is waited for."""
        self._is_over.set()

    def stop(self) -> None:
        self._is_over.set()
        self._thread.join(90)
        if self._thread.is_alive():
            self.faults.append(f"{self.name}: does not come to an end")

    def _guard(self) -> None:
        try:
            self._run()
        except Exception as error:
            self.faults.append(f"{self.name}: {error!r}")

    @abstractmethod
    def _run(self) -> None: ...

    def _plan(self) -> tuple[int, dict[TopicPartition, int]]:
        """The next transaction's number, and how many records it puts where."""
        self._number += 1
        self.outcomes[self._number] = UNKNOWN
        count = self._random.randrange(1, len(self.partitions) + 1)
        chosen = self._random.sample(self.partitions, count)
        return self._number, {each: self._random.randrange(1, 8) for each in chosen}

    def _value(self, number: int, place: int, total: int) -> bytes:
        padding = b"." * self._random.randrange(200)
        return b"%s %d %d %d %s" % (self.name.encode(), number, place, total, padding)

    @property
    def number(self) -> int:
        """Of the newest transaction; all before it are over."""
        return self._number

    def read_again(self) -> None:
        """From here on everything is judged anew, as it is read from the log's start."""
        self._judged = 1
        self._found.clear()
        self._newest.clear()

    def judge(
        self, view: Mapping[TopicPartition, PartitionView], below: int, wire: Wire | None = None
    ) -> list[str]:
        """Takes in what was newly read; each transaction before `below` is there wholly or not at
        all, in order, and as its writer was told. With a wire, so is what it says of offsets.
        """
        faults = list[str]()
        for partition in self.partitions:
            if partition in view:
                faults += self._take(partition, view[partition].records)
        for number in range(self._judged, below):
            faults += self._judge_one(number)
        self._judged = max(self._judged, below)
        if wire is not None:
            newest = max(self._found, default=0)
            code, offset = wire.committed_offset(self.group, *POSITION)
            if code or max(offset, 0) != newest:
                faults.append(f"{self.name}: newest is {newest}, offset is {offset} (code {code})")
        return faults

    def _take(self, partition: TopicPartition, records: list[PlainRecord]) -> list[str]:
        mine, faults = self.name.encode(), list[str]()
        for record in records:
            fields = (record.value or b"").split(b" ", 4)
            if fields[0] != mine:
                continue
            number, place, total = int(fields[1]), int(fields[2]), int(fields[3])
            places, _ = self._found.setdefault(number, ([], total))
            places.append(place)
            if number < self._newest[partition]:
                newest = self._newest[partition]
                faults.append(f"{self.name}: {partition} has {number} after {newest}")
            self._newest[partition] = number
        return faults

    def _judge_one(self, number: int) -> list[str]:
        told = self.outcomes[number]
        if number not in self._found:
            return [f"{self.name}: {number} was committed and is missing"] * (told == COMMITTED)
        places, total = self._found[number]
        if sorted(places) != list(range(total)):
            return [f"{self.name}: {number} is torn ({told}): {sorted(places)} of {total}"]
        return [f"{self.name}: {number} was aborted and is read"] * (told == ABORTED)


class OurTransactions(TransactionLoad):
    """Through KafkaLog."""

    def _run(self) -> None:
        asyncio.run(self._write())

    async def _write(self) -> None:
        settings = KafkaSettings(
            bootstrap=[self._address],
            retry_delay_ms_max=50,
            transaction_timeout_ms=self.timeout_ms,
            abort_for_ms=2_000,
        )
        log = KafkaLog(settings, random=self._random)
        while not self._is_over.is_set():
            try:
                writer = await log.writer(self.name)
                self.reopened_count += 1
                while not self._is_over.is_set():
                    await self._write_one(writer)
            except HeadwaterError:
                await asyncio.sleep(0.01)
        await log.close()

    async def _write_one(self, writer: KafkaWriter) -> None:
        number, counts = self._plan()
        total, place = sum(counts.values()), 0
        is_aborting = self._random.random() < ABORT_SHARE
        try:
            async with writer.transaction() as transaction:
                appends = []
                for partition, count in counts.items():
                    places = range(place, place + count)
                    records = [
                        PlainRecord(
                            None,
                            self._value(number, each, total),
                            timestamp_ms=time.time_ns() // 1_000_000,
                        )
                        for each in places
                    ]
                    place += count
                    batch = Batch(
                        encode_batch(records, compression=self._random.choice((0, 4))), count
                    )
                    appends.append(transaction.append(partition, batch))
                await asyncio.gather(*appends)
                await transaction.commit_offsets(self.group, {POSITION: number})
                if is_aborting:
                    raise Aborting
            self.outcomes[number] = COMMITTED
        except Aborting:
            self.outcomes[number] = ABORTED
        await asyncio.sleep(self._random.random() * 0.02)


class Aborting(Exception):
    """The block ends so on purpose."""


class ConfluentTransactions(TransactionLoad):
    """Through librdkafka."""

    def _run(self) -> None:
        while not self._is_over.is_set():
            producer = Producer(
                {
                    **QUIET,
                    "bootstrap.servers": self._address,
                    "transactional.id": self.name,
                    "transaction.timeout.ms": self.timeout_ms,
                },
                logger=SILENT,
            )
            self._write(producer)
            self.reopened_count += 1

    def _write(self, producer: Producer) -> None:
        """Until the producer is of no use any more, or the load is over."""
        settings = {**QUIET, "bootstrap.servers": self._address, "group.id": self.group}
        reader = Consumer(settings, logger=SILENT)
        try:
            _until_done(lambda: producer.init_transactions(10))
            while not self._is_over.is_set():
                self._write_one(producer, reader)
        except KafkaException as error:
            if not error.args[0].fatal():
                raise
            self.ended_by.append(str(error))
        finally:
            reader.close()

    def _write_one(self, producer: Producer, reader: Consumer) -> None:
        number, counts = self._plan()
        total, place = sum(counts.values()), 0
        try:
            producer.begin_transaction()
            for partition, count in counts.items():
                for _ in range(count):
                    value = self._value(number, place, total)
                    producer.produce(partition.topic, value, partition=partition.partition)
                    place += 1
            position = ConfluentPartition(*POSITION, number)
            metadata = reader.consumer_group_metadata()
            _until_done(lambda: producer.send_offsets_to_transaction([position], metadata, 10))
            if self._random.random() < ABORT_SHARE:
                self._abort(producer, number)
            else:
                _until_done(lambda: producer.commit_transaction(10))
                self.outcomes[number] = COMMITTED
        except KafkaException as error:
            if not error.args[0].txn_requires_abort():
                raise
            self._abort(producer, number)

    def _abort(self, producer: Producer, number: int) -> None:
        _until_done(lambda: producer.abort_transaction(10))
        self.outcomes[number] = ABORTED


def _until_done(step: Callable[[], object]) -> None:
    while True:
        try:
            step()
            return
        except KafkaException as error:
            if not error.args[0].retriable():
                raise
