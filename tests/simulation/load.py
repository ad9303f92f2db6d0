"""Clients of a simulated log (writers, a relay, readers), which remember what they were told."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random

from headwater.core_log.client import KafkaLog, KafkaSettings
from headwater.core_log.client.writer import KafkaWriter
from headwater.core_log.foundation.clock import Clock
from headwater.core_log.foundation.errors import HeadwaterError
from headwater.core_log.model.log import FetchLimit, Isolation, Log, Offsets, TopicPartition
from headwater.core_log.records.batch_header import Batch
from headwater.core_log.records.record_codec import (
    PlainRecord,
    decode_batch,
    encode_batch,
    iterate_batches,
)
from tests.simulation.checker import Marks, Observed, Opened, Outcome, Poll, Sent, Value
from tests.simulation.network import Network

ABORT_SHARE, REOPEN_SHARE, PAUSE_S, KEYS = 0.15, 0.05, 0.05, 8
REPLICAS = 3
POLL = FetchLimit(bytes_max=1 << 16, wait_ms_max=100)


class AbortedOnPurpose(Exception):
    """A writer that changes its mind."""


def client_settings(*addresses: tuple[str, int], rack: str = "") -> KafkaSettings:
    return KafkaSettings(
        rack=rack,
        bootstrap=[f"{host}:{port}" for host, port in addresses],
        connect_wait_ms_max=500,
        request_wait_ms_max=2_000,
        retry_for_ms=20_000,
        retry_delay_ms_max=200,
        transaction_timeout_ms=5_000,
        abort_for_ms=1_000,
        replication_factor=min(len(addresses), REPLICAS),
    )


def batch_of(values: Sequence[Value], now_ms: int) -> Batch:
    """The key of a value is what stands before its `=`."""
    records = [
        PlainRecord(value.partition("=")[0].encode(), value.encode(), timestamp_ms=now_ms)
        for value in values
    ]
    return Batch(encode_batch(records), len(records), now_ms)


def records_in(data: memoryview, *, from_offset: int) -> list[tuple[int, Value]]:
    found = []
    for batch in iterate_batches(data):
        header, records = decode_batch(batch)
        if header.is_control:
            continue
        for record in records:
            if record.offset >= from_offset:
                assert record.value is not None, "nobody here sends a tombstone"
                found.append((record.offset, record.value.decode()))
    return found


@dataclass(frozen=True, slots=True)
class Wiring:
    """A client's name, its way to the log, and its notes."""

    name: str
    open_log: Callable[[Random], Log]
    clock: Clock
    random: Random
    seen: Observed


def simulated_log(
    name: str, network: Network, *addresses: tuple[str, int], rack: str = ""
) -> Callable[[Random], KafkaLog]:
    """Opens logs for a client of that name."""
    settings = client_settings(*addresses, rack=rack)
    return lambda random: KafkaLog(settings, dial=network.dialer(name), random=random)


class Client:
    """A client of the log."""

    def __init__(self, wiring: Wiring) -> None:
        self.name, self.seen, self._random = wiring.name, wiring.seen, wiring.random
        self._clock = wiring.clock
        self.is_over = False
        self.done_count = 0
        """Steps that have succeeded."""
        self.log: Log = wiring.open_log(Random(wiring.random.random()))

    async def work(self) -> None:
        while not self.is_over:
            try:
                await self.step()
                self.done_count += 1
            except HeadwaterError:
                await self.on_failure()
            await asyncio.sleep(self._random.expovariate(1 / PAUSE_S))

    async def step(self) -> None:
        raise AssertionError("each kind of client has its own step")

    async def on_failure(self) -> None:
        """A failed step is followed by the next."""


class WriterClient(Client):
    """Transactions, some of them aborted, over some of its partitions; now and then it opens its
    name anew and leaves its former self with an open transaction."""

    def __init__(
        self, wiring: Wiring, partitions: Sequence[TopicPartition], *, is_keyed: bool = False
    ) -> None:
        """`is_keyed`: it writes a few keys again and again, each to one partition."""
        super().__init__(wiring)
        self._partitions, self._is_keyed = list(partitions), is_keyed
        self._writer: KafkaWriter | None = None
        self._instance = self._number = 0

    async def step(self) -> None:
        writer = await self._open()
        if self._random.random() < REOPEN_SHARE:
            await self._be_overtaken(writer)
        else:
            await self._write(writer, self._instance)

    async def on_failure(self) -> None:
        self._writer = None

    async def _open(self) -> KafkaWriter:
        if self._writer is None:
            self._instance += 1
            instance = self._instance
            self._writer = await self.log.writer(self.name)  # type: ignore[assignment]
            self.seen.opened.append(Opened(self.name, instance, self.seen.place()))
        assert self._writer is not None
        return self._writer

    async def _be_overtaken(self, writer: KafkaWriter) -> None:
        """A second instance takes over while the first writes: one of the two is refused."""
        first, self._writer = self._instance, None
        old = asyncio.ensure_future(self._write(writer, first))
        try:
            await asyncio.sleep(self._random.uniform(0, 0.01))
            await self._open()
        finally:
            await asyncio.gather(old, return_exceptions=True)

    async def _write(self, writer: KafkaWriter, instance: int) -> None:
        count = min(self._random.randint(1, 3), len(self._partitions))
        chosen = self._random.sample(self._partitions, count)
        sent = Sent(self.name, instance, [])
        is_aborted = self._random.random() < ABORT_SHARE
        self.seen.sent.append(sent)
        is_asked = False
        try:
            async with writer.transaction() as transaction:
                for at in chosen:
                    values = [self._next_value() for _ in range(self._random.randint(1, 3))]
                    sent.values += [(at, value) for value in values]
                    offset = await transaction.append(at, batch_of(values, self._clock.now_ms()))
                    sent.offsets |= {value: offset + n for n, value in enumerate(values)}
                if is_aborted:
                    raise AbortedOnPurpose
                sent.commit_at, is_asked = self.seen.place(), True
            sent.outcome = Outcome.COMMITTED
        except AbortedOnPurpose:
            sent.outcome = Outcome.ABORTED
        except HeadwaterError:
            if not is_asked:
                sent.outcome = Outcome.ABORTED
            raise

    def _next_value(self) -> Value:
        self._number += 1
        key = f"{self.name}/{self._random.randrange(KEYS)}="
        return f"{key if self._is_keyed else f'{self.name}/'}{self._number}"


class AppendingClient(Client):
    """Appends with acks=all and without a producer id: at least once."""

    def __init__(self, wiring: Wiring, partitions: Sequence[TopicPartition]) -> None:
        super().__init__(wiring)
        self._partitions, self._number = list(partitions), 0

    async def step(self) -> None:
        self._number += 1
        at, value = self._random.choice(self._partitions), f"{self.name}/{self._number}"
        sent = Sent(self.name, 0, [(at, value)], is_exact=False)
        self.seen.sent.append(sent)
        await self.log.append(at, batch_of([value], self._clock.now_ms()))
        sent.outcome = Outcome.COMMITTED


class RelayClient(Client):
    """Reads one topic and writes each value into another, with its offsets in the transaction."""

    def __init__(
        self, wiring: Wiring, source: Sequence[TopicPartition], target: Sequence[TopicPartition]
    ) -> None:
        super().__init__(wiring)
        self._source, self._target = list(source), list(target)
        self._writer: KafkaWriter | None = None
        self._offsets: dict[TopicPartition, int] = {}
        self._instance = 0
        self.seen.relayed[self.name] = (source[0].topic, target[0].topic)

    async def on_failure(self) -> None:
        self._writer = None

    async def step(self) -> None:
        if self._writer is None:
            self._instance += 1
            writer: KafkaWriter = await self.log.writer(self.name)  # type: ignore[assignment]
            stored = await self.log.committed_offsets(self.name)
            self._offsets = {at: stored.get(at, 0) for at in self._source}
            self.seen.opened.append(Opened(self.name, self._instance, self.seen.place()))
            self._writer = writer
        fetched = await self.log.fetch(self._offsets, limit=POLL, isolation=Isolation.COMMITTED)
        read = [
            record
            for each in fetched
            for record in records_in(each.data, from_offset=self._offsets[each.partition])
        ]
        if not fetched:
            return
        reached = self._offsets | {each.partition: each.next_offset for each in fetched}
        await self._write(self._writer, [value for _, value in read], reached)
        self._offsets = reached

    async def has_all(self) -> bool:
        """Whether nothing is left, also behind a transaction that is still open."""
        bounds = await self.log.bounds(self._source)
        return all(self._offsets.get(at, 0) >= each.end for at, each in bounds.items())

    async def _write(self, writer: KafkaWriter, values: list[Value], reached: Offsets) -> None:
        at = self._random.choice(self._target)
        made = [f"{self.name}:{value}" for value in values]
        sent = Sent(
            self.name,
            self._instance,
            [(at, value) for value in made],
            reads=values,
            is_exact=False,  # an attempt that failed is followed by one with the same values
        )
        self.seen.sent.append(sent)
        is_asked = False
        try:
            async with writer.transaction() as transaction:
                if made:
                    await transaction.append(at, batch_of(made, self._clock.now_ms()))
                await transaction.commit_offsets(self.name, reached)
                sent.commit_at, is_asked = self.seen.place(), True
            sent.outcome = Outcome.COMMITTED
        except HeadwaterError:
            if not is_asked:
                sent.outcome = Outcome.ABORTED
                sent.values = []  # the same values are sent again
            raise


class ReaderClient(Client):
    """Follows all partitions in one isolation."""

    def __init__(
        self, wiring: Wiring, partitions: Sequence[TopicPartition], isolation: Isolation
    ) -> None:
        super().__init__(wiring)
        self._isolation = isolation
        self._next = dict.fromkeys(partitions, 0)

    async def step(self) -> None:
        if self._random.random() < 0.2:
            await self.ask_marks()
        for each in await self.log.fetch(self._next, limit=POLL, isolation=self._isolation):
            start = self._next[each.partition]
            records = records_in(each.data, from_offset=start)
            self.seen.polls.append(
                Poll(self.name, self._isolation, each.partition, start, records, each.next_offset)
            )
            self._next[each.partition] = each.next_offset

    async def ask_marks(self) -> None:
        asked_at = self.seen.place()
        found = await self.log.bounds(self._next)
        told_at = self.seen.place()
        for at, bounds in found.items():
            self.seen.marks.append(Marks(self.name, at, bounds.stable, asked_at, told_at))
