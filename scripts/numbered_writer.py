"""A client that writes numbers with acks=all, and knows afterwards whether one of them is lost."""

import asyncio
import threading
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager

from headwater.core_log.client import KafkaLog, KafkaSettings
from headwater.core_log.model.log import TopicPartition
from headwater.core_log.records.batch_header import Batch
from headwater.core_log.records.record_codec import (
    PlainRecord,
    decode_batch,
    encode_batch,
    iterate_batches,
)

PAUSE_S = 0.01
RETRY_FOR_MS = 60_000


class NumberedWriter:
    """One number after the other: the next one goes out when the last one is acknowledged."""

    def __init__(self, bootstrap: Sequence[str], topic: str) -> None:
        self._settings = KafkaSettings(bootstrap=[*bootstrap], retry_for_ms=RETRY_FOR_MS)
        self._partition = TopicPartition(topic, 0)
        self._is_over = threading.Event()
        self.acknowledged = 0
        """Numbers below this are in the log, if it keeps its promise."""
        self.longest_pause_s = 0.0
        """Between two answers; who reads it may set it back."""

    def run(self) -> None:
        asyncio.run(self._write())

    def stop(self) -> None:
        self._is_over.set()

    def lost(self) -> Collection[int]:
        """The acknowledged numbers that the log does not have."""
        return set(range(self.acknowledged)) - asyncio.run(self._read())

    async def _write(self) -> None:
        log = KafkaLog(self._settings)
        try:
            last_s = time.monotonic()
            while not self._is_over.is_set():
                await log.append(self._partition, _batch_of(self.acknowledged))
                self.acknowledged += 1
                now_s = time.monotonic()
                self.longest_pause_s = max(self.longest_pause_s, now_s - last_s)
                last_s = now_s
                await asyncio.sleep(PAUSE_S)
        finally:
            await log.close()

    async def _read(self) -> set[int]:
        log = KafkaLog(self._settings)
        numbers = set[int]()
        try:
            end = (await log.bounds([self._partition]))[self._partition].stable
            offset = 0
            while offset < end:
                for fetched in await log.fetch({self._partition: offset}):
                    for data in iterate_batches(fetched.data):
                        _, records = decode_batch(data)
                        numbers.update(int(each.value or b"") for each in records)
                    offset = fetched.next_offset
            return numbers
        finally:
            await log.close()


def _batch_of(number: int) -> Batch:
    now_ms = int(time.time() * 1_000)
    record = PlainRecord(None, str(number).encode(), timestamp_ms=now_ms)
    return Batch(encode_batch([record]), 1, now_ms)


@contextmanager
def writing(bootstrap: Collection[str], topic: str) -> Iterator[NumberedWriter]:
    writer = NumberedWriter([*bootstrap], topic)
    thread = threading.Thread(target=writer.run)
    thread.start()
    try:
        yield writer
    finally:
        writer.stop()
        thread.join()
