"""Nothing is readable before it is on disk, so nothing that anybody saw is ever taken back."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from threading import Event

import pytest

from headwater.core_log.broker import group_commit
from headwater.core_log.broker.lifecycle import RunningBroker
from headwater.core_log.embedded import EmbeddedLog
from headwater.core_log.foundation.settings import BrokerSettings, TopicSettings
from headwater.core_log.model.log import FetchLimit, Isolation, Log, TopicPartition
from headwater.core_log.records.batch_header import BatchHeader
from headwater.core_log.records.record_codec import decode_batch, iterate_batches
from headwater.core_log.storage.files import Files
from tests.contract.records import AT_ONCE, batch_of, read_to
from tests.fakes import FaultyFiles, MemoryFiles

ZERO, ONE = TopicPartition("orders", 0), TopicPartition("orders", 1)
LEADER_ONLY = 1


@asynccontextmanager
async def log_on(files: Files, seed: int = 0) -> AsyncIterator[EmbeddedLog]:
    settings = BrokerSettings(data=Path("/data"), listen="127.0.0.1:0", internal_partitions=1)
    running = await RunningBroker.start(settings, files=files, random=Random(seed))
    log = EmbeddedLog(running)
    try:
        await log.ensure_topic(TopicSettings(name="orders", partitions=2))
        yield log
    finally:
        await log.close()


@pytest.fixture(autouse=True)
def never_quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the loop would wait for a disk that has been quick and is held."""
    monkeypatch.setattr(group_commit, "QUICK_S", 0.0)


class SlowDisk:
    """Syncs end only once they are allowed to."""

    def __init__(self) -> None:
        self._allowed = Event()
        self._allowed.set()

    def __call__(self, operation: str, path: Path) -> None:
        if operation == "sync":
            self._allowed.wait(timeout=10)

    def hold(self) -> None:
        self._allowed.clear()

    def release(self) -> None:
        self._allowed.set()


@pytest.mark.parametrize("isolation", list(Isolation))
async def test_nothing_is_readable_before_it_is_on_disk(isolation: Isolation) -> None:
    disk = SlowDisk()
    async with log_on(FaultyFiles(MemoryFiles(), disk)) as log:
        await log.append(ZERO, batch_of("on disk"))

        disk.hold()
        await log.append(ZERO, batch_of("written"), acks=LEADER_ONLY)
        before = await log.fetch({ZERO: 1}, limit=FetchLimit(wait_ms_max=50), isolation=isolation)
        disk.release()

        assert list(before) == []
        assert await read_to(log, ZERO, 2, isolation=isolation) == ["on disk", "written"]


async def test_an_append_is_acknowledged_once_it_is_on_disk() -> None:
    disk = SlowDisk()
    async with log_on(FaultyFiles(MemoryFiles(), disk)) as log:
        disk.hold()
        appending = asyncio.ensure_future(log.append(ZERO, batch_of("a")))
        await log.partition_count("orders")  # asked and answered after the append
        early = appending.done()
        disk.release()

        assert not early
        assert await appending == 0


async def test_a_transaction_is_committed_once_it_is_on_disk() -> None:
    disk = SlowDisk()
    async with log_on(FaultyFiles(MemoryFiles(), disk)) as log:
        writer = await log.writer("writer")

        async def write() -> None:
            async with writer.transaction() as transaction:
                await transaction.append(ZERO, batch_of("a"))
                await transaction.append(ONE, batch_of("b"))
                disk.hold()

        writing = asyncio.ensure_future(write())
        before = await log.fetch(
            {ZERO: 0}, limit=FetchLimit(wait_ms_max=50), isolation=Isolation.COMMITTED
        )
        early = writing.done()
        disk.release()
        await writing

        assert not early
        assert list(before) == []
        assert await read_to(log, ZERO, 1) == ["a"]


class Witness:
    """What writers were promised and readers saw, to be found again after the power came back."""

    def __init__(self) -> None:
        self.acknowledged: dict[tuple[TopicPartition, int], str] = {}
        self.committed: list[str] = []
        self.aborted: list[str] = []
        self.seen: dict[tuple[TopicPartition, int], str] = {}
        self.ends: dict[TopicPartition, int] = {}

    async def append(self, log: Log, name: str) -> None:
        for number in range(1000):
            value = f"{name}{number}"
            self.acknowledged[ZERO, await log.append(ZERO, batch_of(value))] = value

    async def transact(self, log: Log, name: str) -> None:
        writer = await log.writer(name)
        for number in range(1000):
            value = f"{name}{number}"
            try:
                async with writer.transaction() as transaction:
                    for partition in (ZERO, ONE):
                        await transaction.append(partition, batch_of(value))
                    if number % 3 == 2:
                        raise KeyError
                self.committed.append(value)
            except KeyError:
                self.aborted.append(value)

    async def read(self, log: Log, isolation: Isolation) -> None:
        wanted = {ZERO: 0, ONE: 0}
        while True:
            for partition, bounds in (await log.bounds(wanted)).items():
                self.ends[partition] = max(self.ends.get(partition, 0), bounds.end)
            limit = FetchLimit(bytes_max=4000, wait_ms_max=20)
            for part in await log.fetch(wanted, limit=limit, isolation=isolation):
                wanted[part.partition] = part.next_offset
                for offset, value in values_by_offset(part.data):
                    self.seen[part.partition, offset] = value


def values_by_offset(data: memoryview) -> list[tuple[int, str]]:
    return [
        (record.offset, (record.value or b"").decode())
        for batch in iterate_batches(data)
        if not BatchHeader.read(batch).is_control
        for record in decode_batch(batch)[1]
    ]


@pytest.mark.parametrize("seed", range(6))
async def test_records_seen_or_promised_are_there_after_a_power_cut(seed: int) -> None:
    random, files, witness = Random(seed), MemoryFiles(), Witness()
    async with log_on(files, seed) as log:
        busy = [
            witness.append(log, "plain"),
            witness.transact(log, "one"),
            witness.transact(log, "two"),
            witness.read(log, Isolation.UNCOMMITTED),
            witness.read(log, Isolation.COMMITTED),
        ]
        tasks = [asyncio.ensure_future(each) for each in busy]
        await asyncio.sleep(random.uniform(0.02, 0.2))
        after = files.after_power_cut(random)
        promised = (dict(witness.acknowledged), list(witness.committed), list(witness.aborted))
        seen, ends = dict(witness.seen), dict(witness.ends)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async with log_on(after, seed + 1) as log:
        bounds = await log.bounds([ZERO, ONE])
        held: dict[tuple[TopicPartition, int], str] = {}
        for partition in (ZERO, ONE):
            offset = 0
            while offset < bounds[partition].end:
                (part,) = await log.fetch(
                    {partition: offset}, limit=AT_ONCE, isolation=Isolation.UNCOMMITTED
                )
                offset = part.next_offset
                held |= {(partition, o): value for o, value in values_by_offset(part.data)}
        visible = {p: await read_to(log, p, bounds[p].end) for p in (ZERO, ONE)}

    acknowledged, committed, aborted = promised
    assert acknowledged.items() <= held.items()
    assert seen.items() <= held.items()
    assert all(ends[partition] <= bounds[partition].end for partition in ends)
    for values in visible.values():
        assert set(committed) <= set(values)
        assert not set(aborted) & set(values)
        assert len(values) == len(set(values))
    transactional = [value for value in visible[ZERO] if not value.startswith("plain")]
    assert sorted(transactional) == sorted(visible[ONE])  # both partitions or neither
