"""COPY's binary format: finds rows in its messages, and columns in rows."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from headwater.connectors.postgres.wal.kernels import LENGTH_BYTES, SLACK_BYTES, Kernels, all_values
from headwater.core_log.foundation.array_types import Int64Array, UInt8Array
from headwater.core_log.foundation.errors import DecodeError

SIGNATURE = b"PGCOPY\n\xff\r\n\0"
FLAGS_BYTES = 4
TRAILER = b"\xff\xff"
"""In place of a row's number of values: there are no more rows."""


class CopyTuples(NamedTuple):
    """Rows in a buffer, valid until the next ones are requested."""

    buffer: UInt8Array
    starts: Int64Array
    stops: Int64Array

    @property
    def size(self) -> int:
        return int((self.stops - self.starts).sum())


class CopiedRows(NamedTuple):
    columns: tuple[pa.Array, ...]
    """Columns as text or, where requested, as bytes."""
    has_unreadable: bool
    """Whether one of the texts is `UNREADABLE`."""


def tuples_of(buffer: UInt8Array, starts: Int64Array, stops: Int64Array) -> CopyTuples:
    """Returns the rows of messages: one per message, except the last. There is a header before the
    first row, and the last message is or ends with the trailer."""
    first, last = int(starts[0]), int(stops[-1])
    head = _head_bytes(buffer[first : stops[0]].tobytes())
    starts, stops = starts.copy(), stops.copy()
    starts[0] += head
    if stops[-1] - starts[-1] == len(TRAILER) and buffer[last - 2 : last].tobytes() == TRAILER:
        starts, stops = starts[:-1], stops[:-1]
    return CopyTuples(buffer, starts, stops)


def tuples_of_messages(messages: Sequence[bytes | memoryview]) -> CopyTuples:
    """Returns the rows of separate messages."""
    stops = np.cumsum([len(each) for each in messages])
    content = np.frombuffer(b"".join([*messages, bytes(SLACK_BYTES)]), np.uint8)
    return tuples_of(content, np.append(0, stops[:-1]), stops)


def decode_tuples(tuples: CopyTuples, are_texts: Sequence[bool], kernels: Kernels) -> CopiedRows:
    cells = kernels.cells(*tuples, columns=len(are_texts))
    if not cells.is_sound:
        raise DecodeError(
            "a row of COPY has another number of values than columns", columns=len(are_texts)
        )
    if not len(tuples.starts):
        kinds = (pa.string() if is_text else pa.binary() for is_text in are_texts)
        return CopiedRows(tuple(pa.array([], kind) for kind in kinds), False)
    missing = {each: cells.is_null[each] for each in np.flatnonzero(cells.have_nulls).tolist()}
    bare = [place for place, is_text in enumerate(are_texts) if not is_text]
    return CopiedRows(*all_values(kernels, tuples.buffer, cells.bounds, missing, bare))


def _head_bytes(message: bytes) -> int:
    if not message.startswith(SIGNATURE):
        return 0
    at = len(SIGNATURE) + FLAGS_BYTES
    extension = int.from_bytes(message[at : at + LENGTH_BYTES], "big")
    return at + LENGTH_BYTES + extension
