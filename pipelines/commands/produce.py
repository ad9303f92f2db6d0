"""`headwater produce`: appends the lines of stdin to a topic, as they come."""

import asyncio
import random
import sys
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

import click

from headwater.core_log.foundation.clock import unix_ms
from headwater.core_log.foundation.errors import ConfigError
from headwater.pipelines.terminal.log_address import LogAddress, log_options
from headwater.pipelines.terminal.output import Output, format_count, shared_options
from headwater.pipelines.terminal.signals import run_until_signal

if TYPE_CHECKING:
    from headwater.core_log.client import KafkaLog

import os
from collections.abc import AsyncIterator

ACKS = {"0": 0, "1": 1, "all": -1}
ZSTD = 4
RETRY_FOR_MS = 60_000


@click.command()
@click.argument("topic")
@click.option(
    "--acks",
    type=click.Choice(tuple(ACKS)),
    default="all",
    show_default=True,
    help="Wait for nothing, for the leader, or for all replicas' disks.",
)
@click.option(
    "--key-separator",
    metavar="TEXT",
    help="Separator of key and value in a line; without it the line is the value.",
)
@log_options
@shared_options
@click.pass_obj
def produce(
    output: Output,
    topic: str,
    acks: str,
    key_separator: str | None,
    address: LogAddress,
) -> None:
    """Append the lines of stdin to TOPIC, one record each.

    Lines are sent as they come; only the batch in flight is held in memory. Records with a key go
    to its partition, others to the partitions in turn, a batch each. A retry after a lost answer
    can write a batch twice: for exactly once use a transactional client. The first Ctrl-C ends
    after the batch in flight.
    """
    if key_separator == "":
        raise ConfigError("the key separator is empty", hint="--key-separator : for example")
    appended = LineProducer(topic, ACKS[acks], key_separator.encode() if key_separator else None)
    try:
        run_until_signal(append_stdin(address, appended))
    finally:
        verb = "sent" if acks == "0" else "appended"
        output.note(f"{format_count(appended.records, 'record')} {verb}")
    output.result({"topic": topic, "records": appended.records, "bytes": appended.size}, [])


async def append_stdin(address: LogAddress, appended: "LineProducer") -> None:

    async with address.open(retry_for_ms=RETRY_FOR_MS) as log:
        await appended.begin(log)
        async for lines in read_lines(sys.stdin.fileno()):
            await finish_before_cancel(appended.append(log, lines))


async def finish_before_cancel(work: Coroutine[Any, Any, None]) -> None:
    """Delays a cancellation until started work has ended."""
    task = asyncio.ensure_future(work)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await task
        raise


class LineProducer:
    """Turns lines into batches, one per partition, and counts the stored records."""

    def __init__(self, topic: str, acks: int, separator: bytes | None) -> None:
        self.records = self.size = 0
        self._topic, self._acks, self._separator = topic, acks, separator
        self._lines = self._partitions = 0
        # many small runs should not all begin with the same partition
        self._turn = random.randrange(1 << 16)

    async def begin(self, log: "KafkaLog") -> None:
        self._partitions = await log.partition_count(self._topic)

    async def append(self, log: "KafkaLog", lines: list[bytes]) -> None:
        """Returns when all are acknowledged, so that no partition gets them out of order."""
        from headwater.core_log.client.gather import together

        parts = self._parts(lines)
        await together(
            self._append_to(log, partition, keys, values)
            for partition, (keys, values) in parts.items()
        )
        self._turn += 1
        self.records += len(lines)
        self.size += sum(map(len, lines))

    async def _append_to(
        self,
        log: "KafkaLog",
        partition: int,
        keys: list[bytes | None],
        values: list[bytes],
    ) -> None:
        import pyarrow as pa

        from headwater.core_log.model.log import TopicPartition
        from headwater.core_log.records.arrow_codec import encode

        batches = encode(
            pa.array(keys, pa.binary()),
            pa.array(values, pa.binary()),
            timestamps_ms=unix_ms(),
            compression=ZSTD,
        )
        for batch in batches:
            await log.append(TopicPartition(self._topic, partition), batch, acks=self._acks)

    def _parts(self, lines: list[bytes]) -> dict[int, tuple[list[bytes | None], list[bytes]]]:
        if self._separator is None:
            self._lines += len(lines)
            return {self._turn % self._partitions: ([None] * len(lines), lines)}
        keys, values = self._split(lines, self._separator)
        return self._by_key(keys, values)

    def _split(self, lines: list[bytes], separator: bytes) -> tuple[list[bytes], list[bytes]]:
        keys: list[bytes] = []
        values: list[bytes] = []
        for line in lines:
            self._lines += 1
            key, found, value = line.partition(separator)
            if not found:
                raise ConfigError(
                    "the line has no key",
                    line=self._lines,
                    separator=separator.decode(),
                    hint="write every line as KEY, separator, VALUE",
                )
            keys.append(key)
            values.append(value)
        return keys, values

    def _by_key(
        self, keys: list[bytes], values: list[bytes]
    ) -> dict[int, tuple[list[bytes | None], list[bytes]]]:
        import pyarrow as pa

        from headwater.core_log.records.partitioner import partitions_of

        parts: dict[int, tuple[list[bytes | None], list[bytes]]] = {}
        homes = partitions_of(pa.array(keys, pa.binary()), self._partitions)
        for home, key, value in zip(homes.tolist(), keys, values, strict=True):
            part = parts.setdefault(home, ([], []))
            part[0].append(key)
            part[1].append(value)
        return parts


CHUNK_BYTES = 1 << 20
LINE_BYTES_MAX = 16 << 20


async def read_lines(descriptor: int) -> AsyncIterator[list[bytes]]:
    """Whole lines without their ends, as many as were there; the last needs no line end."""
    rest = bytearray()
    count = 0
    async for chunk in _chunks(descriptor):
        rest += chunk
        whole, separator, tail = rest.rpartition(b"\n")
        if separator:
            lines = bytes(whole).split(b"\n")
            count += len(lines)
            yield lines
            rest = bytearray(tail)
        if len(rest) > LINE_BYTES_MAX:
            raise ConfigError("the line is too long", line=count + 1, bytes_max=LINE_BYTES_MAX)
    if rest:
        yield [bytes(rest)]


async def _chunks(descriptor: int) -> AsyncIterator[bytes]:
    while chunk := await _next_chunk(descriptor):
        yield chunk


async def _next_chunk(descriptor: int) -> bytes:
    """Waits on the event loop, so that a signal is heard while nobody types."""
    loop, readable = asyncio.get_running_loop(), asyncio.Event()
    try:
        loop.add_reader(descriptor, readable.set)
    except PermissionError:  # a regular file is always ready, and epoll does not take it
        return os.read(descriptor, CHUNK_BYTES)
    try:
        await readable.wait()
    finally:
        loop.remove_reader(descriptor)
    return os.read(descriptor, CHUNK_BYTES)
