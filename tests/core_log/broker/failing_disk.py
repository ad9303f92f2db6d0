"""A broker's disk that fails, and producers, consumers and administrators who live with it."""

import asyncio
import errno
import os
from pathlib import Path
from random import Random

from headwater.core_log.broker.batch_validation import append_batch
from headwater.core_log.broker.broker import Broker
from headwater.core_log.broker.lifecycle import PartitionRecovery
from headwater.core_log.foundation.errors import HeadwaterError
from headwater.core_log.groups.group_coordinator import OffsetCommitter
from headwater.core_log.groups.offsets import CommittedOffset
from headwater.core_log.groups.transactions import ProducerIdentity
from headwater.core_log.model.log import TopicPartition
from headwater.core_log.protocol.error_codes import ErrorCode
from headwater.core_log.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from headwater.core_log.records.batch_header import BatchHeader
from tests.builders import Sequenced, batch, values_of
from tests.core_log.broker.in_memory import ask, create
from tests.fakes import FaultyFiles, SimulatedClock

CHANGES = ["sync", "write", "create", "replace", "rename", "remove", "truncate", "sync_directory"]
REASONS = [errno.EIO, errno.EIO, errno.ENOSPC, errno.EROFS, errno.EMFILE]
PARTS = [TopicPartition("t", index) for index in range(2)]
GROUP, NAME = "readers", "payments"
TRIES_MAX = 500


class FailingDisk:
    """Some kinds of change fail in some directories, a number of times."""

    def __init__(self, random: Random) -> None:
        self.operations = set(random.sample(CHANGES, random.choice([1, 1, 2, len(CHANGES)])))
        names = ["t-0", "t-1", "__cluster_metadata", "__consumer_offsets", "__transaction_state"]
        self.names = (*random.sample(names, random.choice([1, 2, 5])),)
        self.reason, self.left = random.choice(REASONS), random.choice([1, 1, 3, 1_000])

    def __call__(self, operation: str, path: Path) -> None:
        is_there = path.name.startswith(self.names) or path.parent.name.startswith(self.names)
        if self.left and is_there and operation in self.operations:
            self.left -= 1
            raise OSError(self.reason, os.strerror(self.reason), str(path))


class Life:
    """What was acknowledged, whoever asked for it; what was not may be there or not."""

    def __init__(self, broker: Broker, files: FaultyFiles, random: Random) -> None:
        self.broker, self.files, self.random = broker, files, random
        self.recovery = PartitionRecovery(broker)
        self.produced: dict[TopicPartition, list[bytes]] = {at: [] for at in PARTS}
        self.committed: dict[int, bool] = {}
        """By number of the transaction: whether its commit was acknowledged."""
        self.offset, self.offset_asked = -1, -1
        self.topics: dict[str, bool] = {}
        """Whether a topic is there, as far as somebody was told."""
        self._asked: set[str] = set()
        self._producer: ProducerIdentity | None = None
        self._sequences: dict[TopicPartition, int] = {}
        self._count = 0
        self._works: set[asyncio.Future[None]] = set()

    async def step(self) -> None:
        steps = [self.produce, self.commit_offset, self.transact, self.make_topic, self.fail]
        works = [self.random.choice(steps)() for _ in range(self.random.randrange(1, 4))]
        self._works |= set(map(asyncio.ensure_future, works))  # who waits for room waits on
        await self.look_after()
        await asyncio.wait(self._works, timeout=0.001)
        self._settle({work for work in self._works if work.done()})

    def _settle(self, done: set[asyncio.Future[None]]) -> None:
        self._works -= done
        for work in done:
            error = work.exception()
            assert error is None or isinstance(error, HeadwaterError), repr(error)

    async def fail(self) -> None:
        self.files.fault = FailingDisk(self.random) if self.random.random() < 0.5 else None

    async def look_after(self) -> None:
        clock = self.broker.clock
        assert isinstance(clock, SimulatedClock)
        clock.advance(self.random.choice([0, 300, 40_000]))
        await self.recovery.recover(clock.now_ms())
        await self.broker.transactions.tick(clock.now_ms())

    def _append(self, at: TopicPartition, value: bytes, stamp: Sequenced | None = None) -> int:
        partition = self.broker.find_led(*at)
        if partition is None:
            assert self.broker.why_not_led(*at) is ErrorCode.KAFKA_STORAGE_ERROR
            raise HeadwaterError("offline")
        data = batch(value, producer=stamp, timestamp_ms=1_000)
        header = BatchHeader.read(data)
        done = append_batch(partition, memoryview(data), header, now_ms=1_000, is_urgent=True)
        return done.end_offset

    async def produce(self) -> None:
        at, value = self.random.choice(PARTS), self._value("plain")
        partition = self.broker.find_led(*at)
        end_offset = self._append(at, value)
        assert partition is not None, "it was appended to"
        await partition.wait_committed(end_offset)
        self.produced[at].append(value)

    async def commit_offset(self) -> None:
        self._count += 1
        self.offset_asked = offset = self._count
        codes = await self.broker.groups.commit_offsets(
            GROUP, {PARTS[0]: CommittedOffset(offset, -1, "", 1_000)}, by=OffsetCommitter()
        )
        if codes[PARTS[0]] is ErrorCode.NONE:
            self.offset = max(self.offset, offset)

    async def make_topic(self) -> None:
        name = f"made-{self.random.randrange(3)}"
        if name in self._asked:  # of two answers nobody could tell which came last
            return
        self._asked.add(name)
        is_there = self.topics.pop(name, False)
        if is_there:
            request = DeleteTopicsRequest(topics=[DeleteTopicState(name=name)])
            answer = (await ask(self.broker, request)).responses[0].error_code
        else:
            answer = (await create(self.broker, name)).error_code
        if answer == ErrorCode.NONE:
            self.topics[name] = not is_there
        self._asked.discard(name)

    async def transact(self) -> None:
        """One transaction over both partitions; whatever goes wrong, its producer begins anew."""
        transactions, self._count = self.broker.transactions, self._count + 1
        number, producer, self._producer = self._count, self._producer, None
        if producer is None:
            answer = await transactions.init_producer_id(NAME, timeout_ms=60_000)
            if answer.error is not ErrorCode.NONE:
                return
            producer, self._sequences = answer.producer, {}
        if await transactions.add_partitions(NAME, producer, PARTS) is not ErrorCode.NONE:
            return
        self.committed[number] = False
        for at in PARTS:
            place = self._sequences.get(at, 0)
            self._append(at, b"in %d" % number, Sequenced(*producer, place, True))
            self._sequences[at] = place + 1
            await asyncio.sleep(0)
        answer = await transactions.end(NAME, producer, commit=True, version=1)
        if answer.error is ErrorCode.NONE:
            self.committed[number], self._producer = True, producer

    def _value(self, kind: str) -> bytes:
        self._count += 1
        return b"%s %d" % (kind.encode(), self._count)

    async def _until_served(self) -> None:
        for _ in range(TRIES_MAX):
            await self.look_after()
            if not self.broker.unserved and not self.broker.transactions.is_behind:
                return

    async def heal(self) -> None:
        """The disk is well; nobody starts anything again."""
        self.files.heal()
        await self._until_served()
        if self._works:
            self._settle((await asyncio.wait(self._works))[0])
            await self._until_served()  # a sync that began before may have failed meanwhile
        assert not self.broker.unserved, "everything comes back by itself"
        for _ in range(TRIES_MAX):
            answer = await self.broker.transactions.init_producer_id(NAME, timeout_ms=60_000)
            if answer.error is ErrorCode.NONE:
                break
            await self.look_after()
        self._producer = None
        for at in PARTS:
            partition, value = self.broker.find_led(*at), self._value("last")
            assert partition is not None
            await partition.wait_committed(self._append(at, value))
            self.produced[at].append(value)

    def check(self, broker: Broker) -> None:
        """What was told is so, in this life or another."""
        visible = {at: self._visible(broker, at) for at in PARTS}
        for at, values in self.produced.items():
            assert set(values) <= set(visible[at]), "what was acknowledged is there"
        for number, is_told in self.committed.items():
            seen = {b"in %d" % number in values for values in visible.values()}
            assert len(seen) == 1, "a transaction is whole or absent"
            assert not is_told or seen == {True}, "a commit that was told holds"
        known = broker.groups.offsets_of(GROUP).get(PARTS[0])
        assert self.offset <= (known.offset if known else -1) <= self.offset_asked
        for name, is_there in self.topics.items():
            assert (broker.image.topic(name) is not None) == is_there

    def _visible(self, broker: Broker, at: TopicPartition) -> list[bytes | None]:
        partition = broker.find_led(*at)
        assert partition is not None and partition.last_stable_offset == partition.log.end_offset
        aborted = partition.log.find_aborted(0, partition.log.end_offset)
        hidden = {
            header.base_offset
            for header in partition.log.heads(0)
            for each in aborted
            if header.producer_id == each.producer_id
            and each.first_offset <= header.base_offset < each.last_offset
        }
        return [value for offset, value in values_of(partition.log) if offset not in hidden]
