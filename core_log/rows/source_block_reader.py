"""Reads the `source` blocks of events as they were written, for code that writes the events
again."""

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from headwater.core_log.foundation.errors import DecodeError, RowsRejected
from headwater.core_log.model.changes import ColumnOrValue, source_times
from headwater.core_log.rows.connect_schema import NUMBERS_IN_SOURCE
from headwater.core_log.rows.json.envelope_splitter import as_text, cut_blocks
from headwater.core_log.rows.json.object_reader import read_objects
from headwater.core_log.rows.settings import WireSettings

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
        source, transaction = cut_blocks(as_text(values), has_schemas=wire.has_schemas)
        yield from _of_texts(source, transaction)
    elif wire.value == "debezium-avro":
        yield from _of_avro(values, wire, topic)
    else:
        yield 0, len(values), (source_times(committed_us), None)


def _of_texts(sources: pa.StringArray, transactions: pa.StringArray) -> Iterator[EventRange]:
    try:
        yield 0, len(sources), (_source(sources), _columns(transactions))
        return
    except (RowsRejected, ValueError):
        shapes = [(_shape(source), _shape(transaction)) for source, transaction in
                  zip(sources.to_pylist(), transactions.to_pylist(), strict=True)]  # fmt: skip
    changed = [at for at in range(1, len(shapes)) if shapes[at] != shapes[at - 1]]
    for start, end in pairwise([0, *changed, len(shapes)]):
        count = end - start
        source = _source(sources.slice(start, count))
        yield start, end, (source, _columns(transactions.slice(start, count)))


def _source(texts: pa.StringArray) -> dict[str, ColumnOrValue]:
    columns = _columns(texts)
    if columns is None:
        raise DecodeError("an event does not say where it comes from")
    return _as_told(columns)


def _as_told(columns: Mapping[str, ColumnOrValue]) -> dict[str, ColumnOrValue]:
    """Turns a column with one value for all events into that value, as the source gave it: the
    schema of the block, and its name, depend on that."""
    return {name: _one_value(cell) for name, cell in columns.items()}


def _one_value(cell: ColumnOrValue) -> ColumnOrValue:
    if not isinstance(cell, pa.Array) or not len(cell):
        return cell
    if cell.null_count == len(cell):
        return None
    first = cell[0]
    is_one = not cell.null_count and pc.all(pc.equal(cell, first)).as_py()
    found: ColumnOrValue = first.as_py() if is_one else cell
    return found


def _columns(texts: pa.StringArray) -> dict[str, ColumnOrValue] | None:
    if texts.null_count == len(texts):
        return None
    if texts.null_count:
        raise ValueError("some of the events have no such block")
    shape = _shape(texts[0].as_py())
    columns = read_objects(texts, pa.struct([pa.field(*each) for each in shape]))
    return dict(zip((name for name, _ in shape), columns, strict=True))


def _shape(text: str | None) -> tuple[tuple[str, pa.DataType], ...]:
    if text is None:
        return ()
    said: dict[str, Any] = orjson.loads(text)
    return tuple((name, _kind(name, value)) for name, value in said.items())


def _kind(name: str, value: object) -> pa.DataType:
    if value is None:
        return pa.int64() if name in NUMBERS_IN_SOURCE else pa.string()
    if type(value) not in KINDS:
        raise DecodeError("an event says of its source what no connector of ours says", field=name)
    return KINDS[type(value)]


def _of_avro(values: pa.BinaryArray, wire: WireSettings, topic: str) -> Iterator[EventRange]:
    from headwater.core_log.rows.avro.codecs import AvroTopic

    reader = AvroTopic(wire, topic=topic)
    parts = list(reader.read(values))
    numbers = np.zeros(len(values), np.int64)
    for number, (places, _) in enumerate(parts):
        numbers[places] = number
    changed = (np.flatnonzero(np.diff(numbers)) + 1).tolist()
    for start, end in pairwise([0, *changed, len(values)]):
        places, events = parts[numbers[start]]
        mine = pc.take(events, pa.array(np.searchsorted(places, np.arange(start, end))))
        source, transaction = mine.field("source"), mine.field("transaction")
        has_none = transaction.null_count == len(transaction)
        if transaction.null_count and not has_none:
            raise DecodeError("only some events of a batch name their transaction", topic=topic)
        told = _as_told(_members(source))
        yield start, end, (told, None if has_none else _members(transaction))


def _members(column: pa.StructArray) -> dict[str, ColumnOrValue]:
    return dict(zip((field.name for field in column.type), column.flatten(), strict=True))
