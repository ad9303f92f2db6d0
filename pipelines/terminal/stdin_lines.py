"""Lines from a descriptor as they come, in handfuls, without ever holding more than a little."""

import asyncio
import os
from collections.abc import AsyncIterator

from headwater.core_log.foundation.errors import ConfigError

CHUNK_BYTES = 1 << 20
LINE_BYTES_MAX = 16 << 20


async def handfuls(descriptor: int) -> AsyncIterator[list[bytes]]:
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
