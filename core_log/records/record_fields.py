"""Positions of every record and its fields within the records sections of many batches."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from headwater.core_log.foundation.array_types import Int64Array, UInt8Array
from headwater.core_log.foundation.errors import DecodeError
from headwater.core_log.records.varint import read_pairs, read_varints

RECORD_BYTES_MIN = 7  # length, attributes, two deltas, two lengths, header count
_LOCKSTEP_BATCHES_MIN = 48  # fewer batches are read faster one after another


@dataclass(frozen=True, slots=True)
class RecordFields:
    """One row per record: its numbers and the positions of its fields; length -1 is null."""

    section: Int64Array  # index of the record's batch
    starts: Int64Array  # position of the record's own length
    ends: Int64Array
    timestamp_deltas: Int64Array
    timestamp_ends: Int64Array
    offset_deltas: Int64Array
    key_starts: Int64Array
    key_lengths: Int64Array
    value_starts: Int64Array
    value_lengths: Int64Array
    header_starts: Int64Array


def read_fields(
    data: UInt8Array, starts: Int64Array, ends: Int64Array, counts: Int64Array
) -> RecordFields:
    """Returns the fields of the records in the sections between `starts` and `ends`, one section
    per batch. Only finding the records is serial; each field is read for all records at once."""
    bounds = _record_bounds(data, starts, ends, counts)
    return read_fields_at(data, np.repeat(np.arange(len(counts)), counts), *bounds)


def read_fields_at(
    data: UInt8Array, section: Int64Array, starts: Int64Array, ends: Int64Array
) -> RecordFields:
    """Returns the fields of records whose bounds are known."""
    _, bodies = read_varints(data, starts)
    timestamp_deltas, timestamp_ends = read_varints(data, bodies + 1)
    offset_deltas, position = read_varints(data, timestamp_ends)
    key_lengths, key_starts = read_varints(data, position)
    _check_lengths(key_lengths, key_starts, ends)
    value_lengths, value_starts = read_varints(data, key_starts + key_lengths.clip(0))
    _check_lengths(value_lengths, value_starts, ends)
    header_starts = value_starts + value_lengths.clip(0)
    if (header_starts >= ends).any():
        raise DecodeError("record ends before its headers")
    return RecordFields(
        section=section,
        starts=starts,
        ends=ends,
        timestamp_deltas=timestamp_deltas,
        timestamp_ends=timestamp_ends,
        offset_deltas=offset_deltas,
        key_starts=key_starts,
        key_lengths=key_lengths,
        value_starts=value_starts,
        value_lengths=value_lengths,
        header_starts=header_starts,
    )


def _check_lengths(lengths: Int64Array, starts: Int64Array, ends: Int64Array) -> None:
    """Raises unless each field from `starts` fits before `ends`; -1 stands for null."""
    if ((lengths < -1) | (lengths > ends - starts)).any():
        raise DecodeError("field is longer than its record")


def _record_bounds(
    data: UInt8Array, starts: Int64Array, ends: Int64Array, counts: Int64Array
) -> tuple[Int64Array, Int64Array]:
    """Returns where each record begins and ends; raises unless every batch is exactly full."""
    if ((counts < 0) | (counts > (ends - starts) // RECORD_BYTES_MIN)).any():
        raise DecodeError("batch cannot hold its records")
    firsts = np.cumsum(counts) - counts
    found = np.empty(int(counts.sum()), dtype=np.int64)
    walked, heads = _walk_in_lockstep(data, starts, counts, firsts, found)
    for row in np.flatnonzero(counts > walked).tolist():
        begin, end = int(firsts[row] + walked[row]), int(firsts[row] + counts[row])
        position, limit = int(heads[row]), int(ends[row])
        walk = _walk(data[position:limit].tobytes(), position)
        try:
            found[begin:end] = np.fromiter(walk, np.int64, end - begin)
        except ValueError as error:
            raise DecodeError("batch ends before its last record") from error
    lengths, bodies = read_varints(data, found)
    if ((lengths < RECORD_BYTES_MIN - 1) | (lengths > len(data))).any():
        raise DecodeError("record has an impossible length")
    filled = counts > 0
    expected = np.append(found[1:], 0)
    expected[(firsts + counts - 1)[filled]] = ends[filled]
    record_ends = bodies + lengths
    if (record_ends != expected).any() or (ends != starts)[~filled].any():
        raise DecodeError("records do not fill their batch exactly")
    return found, record_ends


def _walk_in_lockstep(
    data: UInt8Array,
    section_starts: Int64Array,
    counts: Int64Array,
    firsts: Int64Array,
    starts: Int64Array,
) -> tuple[Int64Array, Int64Array]:
    """Advances one record in every batch at a time, while enough batches have one left.

    Returns the number of records found in each batch, and where its next one begins.
    """
    order = np.argsort(-counts, kind="stable")
    remaining, indices = counts[order], firsts[order]
    heads, last = section_starts[order], len(data) - 2
    steps = int(remaining[_LOCKSTEP_BATCHES_MIN - 1]) if len(order) >= _LOCKSTEP_BATCHES_MIN else 0
    active, position = len(order), np.minimum(heads, last)
    for step in range(steps):
        if remaining[active - 1] <= step:
            still = int(np.searchsorted(-remaining, -step))
            heads[:active], active = position, still
            position = position[:active]
        starts[indices[:active]] = position
        indices += 1
        stride = _STRIDES.take(read_pairs(data, position))
        if not stride.all():
            length, body = read_varints(data, position)
            stride = body + length.clip(0, last) - position
        position = np.minimum(position + stride, last)
    heads[:active] = position
    walked, positions = np.empty_like(order), np.empty_like(order)
    walked[order], positions[order] = np.minimum(remaining, steps), heads
    return walked, positions


def _walk(section: bytes, position: int) -> Iterator[int]:
    """Yields where each record begins. Each length gives the next start, so this cannot be
    vectorized."""
    base, index, size, steps = position, 0, len(section) - 1, _STEPS
    while index < size:
        yield base + index
        step = steps[section[index]][section[index + 1]]
        index += step or _long_step(section, index)


def _long_step(section: bytes, index: int) -> int:
    data = np.frombuffer(section, np.uint8)
    lengths, bodies = read_varints(data, np.array([index]))
    if lengths[0] < 0:
        raise DecodeError("record has an impossible length")
    return int(bodies[0]) - index + int(lengths[0])  # a column of numbers could not hold it


def _strides() -> Int64Array:
    """Returns the distance to the next record by its first two bytes; 0 if its length takes
    more."""
    pairs = np.arange(1 << 16, dtype=np.int64)
    low, high = pairs & 0xFF, pairs >> 8
    two = np.where(high < 0x80, ((low & 0x7F | high << 7) >> 1) + 2, 0)
    return np.where(low < 0x80, (low >> 1) + 1, two)


_STRIDES = _strides()
_STEPS: list[list[int]] = _STRIDES.reshape(256, 256).T.tolist()
