"""COPY's text format into columns of text."""

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from connectors.postgres.wal.burst import Bytes, Int64s
from connectors.postgres.wal.kernels import SLACK_BYTES, Kernels
from connectors.postgres.wal.texts import all_texts
from core_log.errors import DecodeError

BACKSLASH = ord("\\")

MEANINGS = np.arange(256, dtype=np.uint8)
MEANINGS[list(b"bfnrtv")] = list(b"\b\f\n\r\t\v")


class Copied(NamedTuple):
    columns: tuple[pa.StringArray, ...]
    has_unreadable: bool
    """Whether any of the texts is `UNREADABLE`."""


def decode_copy(content: bytes, columns: int, kernels: Kernels) -> Copied:
    """Whole lines of what `COPY ... TO STDOUT` sends, column by column."""
    buffer = np.zeros(len(content) + SLACK_BYTES, np.uint8)
    buffer[: len(content)] = np.frombuffer(content, np.uint8)
    cells = kernels.cells(buffer, len(content), columns)
    if not cells.is_sound:
        raise DecodeError("a line of COPY has not as many values as columns", columns=columns)
    if not content:
        return Copied(tuple(pa.array([], pa.string()) for _ in range(columns)), False)
    missing = {each: cells.is_null[each] for each in np.flatnonzero(cells.have_nulls).tolist()}
    found, has_unreadable = all_texts(kernels, buffer, cells.bounds, missing)
    meant = tuple(
        _unescaped(values) if has_escapes else values
        for values, has_escapes in zip(found, cells.have_escapes.tolist(), strict=True)
    )
    return Copied(meant, has_unreadable)


def _unescaped(values: pa.StringArray) -> pa.StringArray:
    """What follows a backslash by its meaning, and the backslash gone.

    Every value holds whole escapes, so that all of them can be read as one text.
    """
    validity, offsets_buffer, content_buffer = values.buffers()
    offsets = np.frombuffer(offsets_buffer, np.int32)[: len(values) + 1]
    content = np.frombuffer(content_buffer, np.uint8)[: offsets[-1]].copy()
    escapes = _escape_places(content)
    if len(escapes) and escapes[-1] + 1 == len(content):
        raise DecodeError("a value of COPY ends within an escape")
    content[escapes + 1] = MEANINGS[content[escapes + 1]]
    kept = np.delete(content, escapes)
    ends = offsets - np.searchsorted(escapes, offsets).astype(np.int32)
    return pa.Array.from_buffers(
        pa.string(), len(values), [validity, pa.py_buffer(ends), pa.py_buffer(kept)]
    )


def _escape_places(content: Bytes) -> Int64s:
    """Backslashes that begin an escape: in a run of them every other one."""
    places = np.flatnonzero(content == BACKSLASH)
    if not len(places):
        return places
    is_new_run = np.diff(places, prepend=-2) != 1
    run_starts = np.maximum.accumulate(np.where(is_new_run, np.arange(len(places)), 0))
    return np.asarray(places[(np.arange(len(places)) - run_starts) % 2 == 0])
