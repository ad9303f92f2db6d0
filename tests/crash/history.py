"""One history: a broker under every kind of load, taken down again and again, and checked."""

import asyncio
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random, SystemRandom
from typing import Protocol, Self

from headwater.core_log.client import KafkaLog, KafkaSettings
from headwater.core_log.foundation.settings import TopicSettings
from headwater.core_log.model.log import TopicPartition
from tests.budget import IS_LONG
from tests.crash.group_load import GroupLoad
from tests.crash.idempotent_load import ProducerLoad
from tests.crash.log_contents import PartitionView, faults_of, read_partition
from tests.crash.plain_client import LATEST, SETTLE_S_MAX, Wire
from tests.crash.remembering_reader import Witness
from tests.crash.topic_load import TopicLoad
from tests.crash.transactional_load import ConfluentTransactions, OurTransactions, TransactionLoad

SMALL = {"segment.bytes": "65536", "index.interval.bytes": "1024"}
COMPACTED = {
    "cleanup.policy": "compact",
    "segment.bytes": "32768",
    "segment.ms": "2000",
    "min.cleanable.dirty.ratio": "0.01",
    "min.compaction.lag.ms": "0",
}
TOPICS = {
    "plain": TopicSettings(name="plain", partitions=3, config=SMALL),
    "loose": TopicSettings(name="loose", partitions=2, config=SMALL),
    "moved": TopicSettings(name="moved", partitions=3, config=SMALL),
    "newest": TopicSettings(name="newest", partitions=2, config=COMPACTED),
}
SETTINGS = {
    "internal_partitions": "4",
    "housekeeping_interval_ms": "300",
    "node_id": "1",
}
CRASHES_PER_HISTORY = 25


class Broker(Protocol):
    """However it runs, it comes back under the same address."""

    address: str

    @property
    def host_and_port(self) -> tuple[str, int]: ...
    def start(self) -> None: ...
    def stop(self) -> None: ...


class Load(Protocol):
    """Clients at work, and what they found wrong."""

    faults: list[str]

    def start(self) -> None: ...
    def stop(self) -> None: ...
    def abandon(self) -> None: ...


def partitions_of(*topics: str) -> list[TopicPartition]:
    return [
        TopicPartition(name, index) for name in topics for index in range(TOPICS[name].partitions)
    ]


@dataclass(frozen=True)
class Plan:
    """How many crashes in all, in histories of a size that can be understood afterwards."""

    crashes: int
    first_seed: int

    @classmethod
    def from_environment(cls, name: str, *, short: int, long: int) -> Self:
        """HEADWATER_SEED repeats a failure; without it every run is another."""
        usual = long if IS_LONG else short
        seed = os.environ.get("HEADWATER_SEED") or SystemRandom().randrange(1 << 32)
        return cls(int(os.environ.get(name, usual)), int(seed))

    @property
    def crashes_each(self) -> int:
        return min(self.crashes, CRASHES_PER_HISTORY)

    def seeds(self) -> list[int]:
        return [self.first_seed + place for place, _ in enumerate(self.names())]

    def names(self) -> list[str]:
        """Without the seed, so that a test has the same name in every run."""
        count = -(-self.crashes // CRASHES_PER_HISTORY)
        return [f"history {place + 1}" for place in range(count)]


class History:
    """Everything random comes from `seed`, but for what the operating system decides."""

    def __init__(self, random: Random, broker: Broker, *, promised_acks: Sequence[str]) -> None:
        """With those acks a record must survive once it was acknowledged."""
        self._random, self.broker, self.promised_acks = random, broker, promised_acks
        address = self.broker.address
        self.producers = [
            ProducerLoad("steady", address, partitions_of("plain"), self._fork(), acks="all"),
            ProducerLoad(
                "second", address, partitions_of("plain", "moved"), self._fork(), acks="all"
            ),
            ProducerLoad(
                "keyed", address, partitions_of("newest"), self._fork(), acks="all", keys=40
            ),
            ProducerLoad("hasty", address, partitions_of("loose"), self._fork(), acks="1"),
            ProducerLoad("careless", address, partitions_of("loose"), self._fork(), acks="0"),
        ]
        self.transactions: list[TransactionLoad] = [
            OurTransactions("ours", address, partitions_of("moved", "plain"), self._fork()),
            ConfluentTransactions("theirs", address, partitions_of("moved"), self._fork()),
        ]
        self.groups = GroupLoad(address)
        self.topics = TopicLoad(self.broker.host_and_port, self._fork())
        followed = partitions_of("plain", "loose", "moved")
        self.witnesses = [
            Witness(self.broker.host_and_port, followed, committed=committed)
            for committed in (False, True)
        ]
        self.loads: Sequence[Load] = (
            *self.producers,
            *self.transactions,
            self.groups,
            self.topics,
            *self.witnesses,
        )
        self.checked_to: dict[TopicPartition, int] = {}

    def _fork(self) -> Random:
        return Random(self._random.random())

    def begin(self) -> None:
        self.broker.start()
        asyncio.run(self._create_topics())
        for load in self.loads:
            load.start()

    def abandon(self) -> None:
        """Nothing is waited for, and nobody left at work."""
        for load in self.loads:
            load.abandon()

    async def _create_topics(self) -> None:
        log = KafkaLog(KafkaSettings(bootstrap=[self.broker.address]))
        for topic in TOPICS.values():
            await log.ensure_topic(topic)
        await log.close()

    def end(self) -> None:
        """Everybody finishes; then all of it is read once more, before and after a clean stop."""
        for each in self.loads:
            each.stop()
        self._check_everything()
        self.broker.stop()
        self.broker.start()
        self._check_everything()
        self.broker.stop()

    def _check_everything(self) -> None:
        self.checked_to.clear()
        for producer in self.producers:
            producer.read_again()
        for writer in self.transactions:
            writer.read_again()
        self.check(is_final=True)

    def check(self, *, is_final: bool) -> None:
        """While the load goes on, only what is new since the last check is read again."""
        answered = [len(each.answers) for each in self.producers]
        begun = [each.number + is_final for each in self.transactions]
        reached = [each.reached() for each in self.witnesses]
        settled = self.topics.settled()
        faults = list[str]()
        with Wire(self.broker.host_and_port) as wire:
            faults += self._await_stable(wire)
            faults += self.groups.judge(wire)
            faults += self.topics.judge(wire, settled)
            view = {each: self._read(wire, each) for each in partitions_of(*TOPICS)}
            for writer, below in zip(self.transactions, begun, strict=True):
                faults += writer.judge(view, below, wire if is_final else None)
        for producer, count in zip(self.producers, answered, strict=True):
            is_promised = producer.acks in self.promised_acks
            if producer.is_keyed:
                faults += producer.judge_newest(view, count)
            else:
                faults += producer.judge(view, count if is_promised else -1)
        for partition, seen in view.items():
            is_whole = partition.topic != "newest"
            faults += faults_of(partition, seen, is_dense=is_whole)
            if is_whole:
                start = self.checked_to.get(partition, 0)
                for witness, ends in zip(self.witnesses, reached, strict=True):
                    faults += witness.missing_from(
                        partition, seen, from_offset=start, below=ends[partition]
                    )
                self.checked_to[partition] = seen.stable_offset
        for load in self.loads:
            faults += load.faults
        assert not faults, "\n".join(faults[:40])

    def _read(self, wire: Wire, partition: TopicPartition) -> PartitionView:
        if partition.topic == "newest":
            return read_partition(wire, partition)
        return read_partition(wire, partition, self.checked_to.get(partition, 0))

    def _await_stable(self, wire: Wire) -> list[str]:
        """No transaction hangs: what is readable now is decided soon."""
        faults = list[str]()
        for topic, index in partitions_of(*TOPICS):
            end = wire.offset(topic, index, LATEST)
            deadline = time.monotonic() + SETTLE_S_MAX
            while (stable := wire.offset(topic, index, LATEST, committed=True)) < end:
                if time.monotonic() > deadline:
                    faults.append(f"{topic}-{index}: {stable} of {end} is decided, and no more")
                    break
                time.sleep(0.01)
        return faults
