"""A reader that forgets nothing: what it has once seen must be there, the same, for ever."""

import threading
from zlib import crc32

from headwater.core_log.model.log import TopicPartition
from headwater.core_log.protocol.error_codes import ErrorCode
from tests.crash.log_contents import PartitionView, visible_of
from tests.crash.plain_client import Stored, Wire

POLL_MS = 50


class Witness:
    """Follows every partition in one isolation, over connections that come and go."""

    def __init__(
        self, address: tuple[str, int], partitions: list[TopicPartition], *, committed: bool
    ) -> None:
        self._address, self._committed = address, committed
        self._next = dict.fromkeys(partitions, 0)
        self._seen: dict[TopicPartition, dict[int, tuple[int, int, bool]]] = {
            each: {} for each in partitions
        }
        self._reached = dict.fromkeys(partitions, 0)
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.faults: list[str] = []

    @property
    def seen_count(self) -> int:
        return sum(len(batches) for batches in self._seen.values())

    def start(self) -> None:
        self._thread.start()

    def abandon(self) -> None:
        self._is_over.set()

    def stop(self) -> None:
        self._is_over.set()
        self._thread.join(30)

    def _run(self) -> None:
        while not self._is_over.is_set():
            try:
                with Wire(self._address, answer_s_max=5) as wire:
                    while not self._is_over.is_set():
                        self._read(wire)
            except OSError:
                self._is_over.wait(0.02)
            except Exception as error:
                self.faults.append(f"witness: {error!r}")
                return

    def _read(self, wire: Wire) -> None:
        topics = sorted({each.topic for each in self._next})
        for topic in topics:
            offsets = {
                each.partition: offset for each, offset in self._next.items() if each.topic == topic
            }
            answer = wire.fetch(topic, offsets, committed=self._committed, wait_ms=POLL_MS)
            for index, read in answer.items():
                partition = TopicPartition(topic, index)
                if read.error_code == ErrorCode.KAFKA_STORAGE_ERROR:
                    continue  # the disk is gone, and soon the broker
                if read.error_code:
                    self.faults.append(
                        f"witness: {partition} at {offsets[index]} answers {read.error_code}, "
                        f"having reached {self._reached[partition]}"
                    )
                    self._is_over.set()
                    return
                seen = read.batches
                if self._committed:
                    seen = visible_of(read.batches, read.aborted)
                self._remember(partition, seen)
                if read.batches:
                    self._next[partition] = read.batches[-1].next_offset
                limit = read.stable_offset if self._committed else read.high_watermark
                self._reached[partition] = max(self._reached[partition], limit)

    def _remember(self, partition: TopicPartition, batches: list[Stored]) -> None:
        seen = self._seen[partition]
        for batch in batches:
            seen[batch.base_offset] = (batch.next_offset, crc32(batch.data), batch.is_control)

    def reached(self) -> dict[TopicPartition, int]:
        """How far it knows each partition to be readable."""
        return dict(self._reached)

    def missing_from(
        self, partition: TopicPartition, view: PartitionView, *, from_offset: int, below: int
    ) -> list[str]:
        """How the view, read from that offset on, contradicts what had been seen below another."""
        reached = view.stable_offset if self._committed else view.high_watermark
        now = {
            batch.base_offset: batch
            for batch in (view.committed if self._committed else view.batches)
        }
        name, faults = "{}-{}".format(*partition), list[str]()
        if reached < below:
            faults.append(f"{name}: readable to {below}, now to {reached}")
        # A list of items is not made in one go, as a copy is: a collection of garbage in between
        # may run Python code, and with it the thread that reads on.
        seen = self._seen[partition].copy()
        for base_offset, (next_offset, checksum, is_control) in seen.items():
            if base_offset < from_offset or base_offset >= below:
                continue
            batch = now.get(base_offset)
            if batch is None:
                faults.append(f"{name}: offset {base_offset} was read once and is gone")
            elif is_control:
                if not batch.is_control:
                    faults.append(f"{name}: offset {base_offset} was a marker and is none now")
            elif (batch.next_offset, crc32(batch.data)) != (next_offset, checksum):
                faults.append(f"{name}: offset {base_offset} holds something else now")
        return faults[:20]
