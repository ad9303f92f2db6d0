"""Prints changes as they arrive, with decimals and dates in readable form."""

import sys
from collections.abc import Sequence
from typing import TextIO

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from headwater.core_log.foundation.errors import Diagnostic, SinkRejected
from headwater.core_log.foundation.name_patterns import Patterns
from headwater.core_log.model.changes import Operation, TableChanges
from headwater.core_log.model.table_schema import TableSchema
from headwater.core_log.rows.text.datetime import database_text, python_value, times_to_text
from headwater.core_log.rows.text.number import decimal_to_text
from headwater.sinks.console.settings import ConsoleSettings
from headwater.sinks.sink import AppliedOffsets, SinkContext, Slice


class ConsoleSink:
    """Prints changes, at least once.

    Standard output cannot store offsets, so the pipeline's consumer group does.
    """

    Settings = ConsoleSettings

    def __init__(
        self, settings: ConsoleSettings, context: SinkContext, output: TextIO | None = None
    ) -> None:
        self._settings, self._output = settings, output or sys.stdout
        self._wanted, self._left = Patterns(settings.tables), settings.limit

    async def committed_offsets(self, topics: Sequence[str]) -> AppliedOffsets | None:
        return None

    async def apply(self, part: Slice) -> None:
        from headwater.sinks.console.sink import json_lines, people_lines

        write = json_lines if self._settings.format == "json" else people_lines
        async for changes in part.changes():
            if self._left == 0:
                return
            if not self._wanted.matches(str(changes.schema.table)):
                continue
            if self._left is not None:
                shown = min(self._left, len(changes))
                changes = changes.take(pa.array(range(shown), pa.int64()))
                self._left -= shown
            self._print(write(changes))

    async def plan(self, schemas: Sequence[TableSchema]) -> Sequence[str]:
        shown = [str(schema.table) for schema in schemas if self._wanted.matches(str(schema.table))]
        return [f"print changes of {table}" for table in sorted(shown)]

    async def examine(self) -> Sequence[Diagnostic]:
        return ()

    async def drop(self) -> Sequence[str]:
        return ()

    async def close(self) -> None:
        """Does nothing: standard output does not belong to the sink."""

    def _print(self, text: str) -> None:
        try:
            self._output.write(text)
            self._output.flush()
        except BrokenPipeError:
            raise SinkRejected(
                "standard output is closed", hint="take out the console sink, or restart"
            ) from None


WORDS = pa.array(["read", "insert", "update", "delete", "truncate", "read"])
WORD_WIDTH = 8
NULL, EMPTY = pa.scalar("null"), pa.scalar("")

AWKWARD = r"[^\x20-\x7e\p{L}\p{N}\p{P}\p{S}]|[\"\\]"
"""Characters that JSON escapes, or that a terminal might obey."""


def people_lines(changes: TableChanges) -> str:
    """Returns lines such as `update shop.orders id=7 status="paid" total="12.50"`; a delete shows
    its key."""
    table = printable(str(changes.schema.table))
    if changes.is_truncate:
        share = (f" {printable(name)}={value}" for name, value in _share(changes).items())
        return f"truncate {table}{''.join(share)}\n"
    head = _concat(pc.utf8_rpad(WORDS.take(changes.operations), WORD_WIDTH), f" {table}")
    cells = [_concat(f" {printable(name)}=", cells) for name, cells in _cells(changes)]
    return _text(head, *_show(changes, cells), "\n")


def json_lines(changes: TableChanges) -> str:
    """Returns lines such as `{"op": "update", "table": "shop.orders", "row": {"id": 7, ...}, "at":
    "shop.orders-0@5"}`. Values are text unless they are numbers, booleans or nested."""
    table, at = quote(str(changes.schema.table)), _log_positions(changes)
    if changes.is_truncate:
        share = ", ".join(f"{quote(name)}: {value}" for name, value in _share(changes).items())
        row = f"{{{share}}}" if share else "null"
        return _text(f'{{"op": "truncate", "table": {table}, "row": {row}, "at": ', at, "}\n")
    cells = [
        _concat(f"{', ' if number else ''}{quote(name)}: ", cells)
        for number, (name, cells) in enumerate(_cells(changes))
    ]
    words = WORDS.take(changes.operations)
    head = _concat('{"op": "', words, f'", "table": {table}, "row": {{')
    return _text(head, *_show(changes, cells), '}, "at": ', at, "}\n")


def _share(changes: TableChanges) -> dict[str, str]:
    """Returns the values shared by all rows of a truncate; empty if it removes every row."""
    return {name: quote(str(value)) for name, value in changes.truncated_where.items()}


def _cells(changes: TableChanges) -> list[tuple[str, pa.Array]]:
    """Returns names and formatted values of all columns, the key's first."""
    return [(name, cell_texts(changes.rows.column(name))) for name in _order(changes)]


def _order(changes: TableChanges) -> list[str]:
    key = changes.schema.key
    return [*key, *(name for name in changes.schema.names if name not in key)]


def _show(changes: TableChanges, cells: list[pa.Array]) -> list[pa.Array]:
    """Leaves only the key of a delete, if the table has one."""
    key = len(changes.schema.key)
    is_delete = pc.equal(changes.operations, int(Operation.DELETE))
    if not key:
        return cells
    return [*cells[:key], *(pc.if_else(is_delete, EMPTY, cell) for cell in cells[key:])]


def cell_texts(column: pa.Array) -> pa.Array:
    """Returns values as people write them; all but numbers and booleans are in double quotes."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        return cell_texts(column.cast(kind.value_type))
    if pa.types.is_boolean(kind) or pa.types.is_integer(kind):
        return column.cast(pa.string()).fill_null(NULL)
    if pa.types.is_floating(kind):
        return _floats(column)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return _quoted_column(column.cast(pa.string()))
    if pa.types.is_decimal(kind):
        return _quoted_column(decimal_to_text(column))
    if pa.types.is_timestamp(kind):
        written = database_text(column)
        return _quoted_column(pc.replace_substring(written, " ", "T", max_replacements=1))
    if pa.types.is_date32(kind):
        return _quoted_column(database_text(column))
    if pa.types.is_time(kind):
        return _quoted_column(times_to_text(column))
    if pa.types.is_date(kind):
        return _quoted_column(column.cast(pa.string()))
    return pa.array([_dump(python_value(value)) for value in column], pa.string())


def _floats(column: pa.Array) -> pa.Array:
    """Writes NaN and infinity as text, because JSON has no form for them."""
    texts = column.cast(pa.string())
    return pc.if_else(pc.is_finite(column), texts, _concat('"', texts, '"')).fill_null(NULL)


def _dump(value: object) -> str:
    """Writes bytes, lists and structs, which are rare, one by one."""
    return orjson.dumps(value, default=_foreign, option=orjson.OPT_NON_STR_KEYS).decode()


def _foreign(value: object) -> str:
    return value.hex() if isinstance(value, bytes) else str(value)


def _quoted_column(texts: pa.Array) -> pa.Array:
    """Quotes a whole column at once, and the few awkward values one by one."""
    found = _concat('"', texts, '"')
    awkward = pc.match_substring_regex(texts, AWKWARD).fill_null(False)
    if pc.any(awkward).as_py():
        indices = pa.array(np.flatnonzero(np.asarray(awkward)))
        written = pa.array([quote(text) for text in texts.take(indices).to_pylist()], pa.string())
        found = pc.replace_with_mask(found, awkward, written)
    return found.fill_null(NULL)


def quote(text: str) -> str:
    return printable(orjson.dumps(text).decode())


def printable(text: str) -> str:
    """Returns the text with terminal control characters in JSON's escapes."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else _escape(each) for each in text)


def _escape(character: str) -> str:
    units = character.encode("utf-16-be")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))


def _log_positions(changes: TableChanges) -> pa.Array | str:
    """Returns the place of each change in the log, such as `topic-0@17`."""
    if changes.log_partition is None or changes.log_offsets is None:
        return "null"
    topic, partition = changes.log_partition
    head = quote(f"{topic}-{partition}@").removesuffix('"')
    return _concat(head, changes.log_offsets.cast(pa.string()), '"')


def _concat(*parts: pa.Array | str) -> pa.Array:
    return pc.binary_join_element_wise(*parts, EMPTY)


def _text(*parts: pa.Array | str) -> str:
    lines = _concat(*parts)
    return "".join(lines.to_pylist()) if isinstance(lines, pa.Array) else str(lines)
