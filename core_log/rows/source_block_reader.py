"""Reads the `source` blocks of events as they were written, for code that writes the events
again."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.core_log.foundation.errors import DecodeError, RowsRejected
from headwater.core_log.model.changes import ColumnOrValue, source_times
from headwater.core_log.rows.connect_schema import NUMBERS_IN_SOURCE
from headwater.core_log.rows.json.strict_reader import columns_of, parse
from headwater.core_log.rows.settings import WireSettings

BLOCKS = ("source", "transaction")
KINDS = {bool: pa.bool_(), int: pa.int64(), str: pa.string()}
SourceBlocks = tuple[Mapping[str, ColumnOrValue], Mapping[str, ColumnOrValue] | None]
"""The `source` block and the `transaction` block as columns."""
EventRange = tuple[int, int, SourceBlocks]
"""Neighbouring events (first, and end) with blocks of the same fields."""


def blocks_of(
    values: pa.BinaryArray, wire: WireSettings, committed_us: pa.Int64Array, *, topic: str
) -> Iterator[EventRange]:
    """Returns the blocks. Flat rows have only the commit time of their source."""
    if not len(values):
        return
    if wire.value == "debezium-json":
        documents = parse(values, has_schemas=wire.has_schemas)
        events = [each if isinstance(each, dict) else {} for each in documents]
        sources, transactions = ([each.get(name) for each in events] for name in BLOCKS)
        yield from _of_documents(sources, transactions)
    elif wire.value == "debezium-avro":
        yield from _of_avro(values, wire, topic)
    else:
        yield 0, len(values), (source_times(committed_us), None)


def _of_documents(sources: Sequence[Any], transactions: Sequence[Any]) -> Iterator[EventRange]:
    try:
        yield 0, len(sources), (_source(sources), _columns(transactions))
        return
    except (RowsRejected, ValueError):
        shapes = [
            (_shape(source), _shape(transaction))
            for source, transaction in zip(sources, transactions, strict=True)
        ]
    changed = [at for at in range(1, len(shapes)) if shapes[at] != shapes[at - 1]]
    for start, end in pairwise([0, *changed, len(shapes)]):
        yield start, end, (_source(sources[start:end]), _columns(transactions[start:end]))


def _source(blocks: Sequence[Any]) -> dict[str, ColumnOrValue]:
    columns = _columns(blocks)
    if columns is None:
        raise DecodeError("an event has no `source` block")
    return _as_constants(columns)


def _as_constants(columns: Mapping[str, ColumnOrValue]) -> dict[str, ColumnOrValue]:
    """Turns a column with one value for all events into that value, as the source gave it: the
    schema of the block, and its name, depend on that."""
    return {name: _one_value(value) for name, value in columns.items()}


def _one_value(value: ColumnOrValue) -> ColumnOrValue:
    if not isinstance(value, pa.Array) or not len(value):
        return value
    if value.null_count == len(value):
        return None
    first = value[0]
    is_one = not value.null_count and pc.all(pc.equal(value, first)).as_py()
    found: ColumnOrValue = first.as_py() if is_one else value
    return found


def _columns(blocks: Sequence[Any]) -> dict[str, ColumnOrValue] | None:
    missing = sum(block is None for block in blocks)
    if missing == len(blocks):
        return None
    if missing:
        raise ValueError("only some events have the block")
    shape = _shape(blocks[0])
    columns = columns_of(blocks, pa.struct([pa.field(*each) for each in shape]))
    return dict(zip((name for name, _ in shape), columns, strict=True))


def _shape(block: Any) -> tuple[tuple[str, pa.DataType], ...]:
    if block is None:
        return ()
    if not isinstance(block, dict):
        raise DecodeError("a block of an event is not an object")
    return tuple((name, _kind(name, value)) for name, value in block.items())


def _kind(name: str, value: object) -> pa.DataType:
    if value is None:
        return pa.int64() if name in NUMBERS_IN_SOURCE else pa.string()
    if type(value) not in KINDS:
        raise DecodeError(
            "the `source` block of an event has a value of an unknown type", field=name
        )
    return KINDS[type(value)]


def _of_avro(values: pa.BinaryArray, wire: WireSettings, topic: str) -> Iterator[EventRange]:
    from headwater.core_log.rows.avro.codecs import AvroTopic

    reader = AvroTopic(wire, topic=topic)
    parts = list(reader.read(values))
    numbers = np.zeros(len(values), np.int64)
    for number, (indices, _) in enumerate(parts):
        numbers[indices] = number
    changed = (np.flatnonzero(np.diff(numbers)) + 1).tolist()
    for start, end in pairwise([0, *changed, len(values)]):
        indices, events = parts[numbers[start]]
        mine = pc.take(events, pa.array(np.searchsorted(indices, np.arange(start, end))))
        source, transaction = mine.field("source"), mine.field("transaction")
        has_none = transaction.null_count == len(transaction)
        if transaction.null_count and not has_none:
            raise DecodeError("only some events of a batch name their transaction", topic=topic)
        constants = _as_constants(_members(source))
        yield start, end, (constants, None if has_none else _members(transaction))


def _members(column: pa.StructArray) -> dict[str, ColumnOrValue]:
    return dict(zip((field.name for field in column.type), column.flatten(), strict=True))
