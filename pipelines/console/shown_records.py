"""Records of any topic as pages show them: a table's events as rows, all else as text."""

import codecs
from collections.abc import Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from headwater.core_log.foundation.errors import HeadwaterError
from headwater.core_log.model.log import Log, TopicPartition
from headwater.core_log.records.record_headers import header_lists
from headwater.core_log.records.record_views import RecordColumns
from headwater.core_log.rows.codec import SCHEMA_HEADER, TRUNCATE_KEY
from headwater.pipelines.console.hidden_columns import HIDDEN, ShownTable, shorten
from headwater.pipelines.loops.deliver.decoder import RecordDecoder
from headwater.pipelines.terminal.record_lines import shown_bytes
from headwater.pipelines.time_travel.history.key_history import KeyChange, decode_changes

UTF8 = codecs.getincrementaldecoder("utf-8")


@dataclass(frozen=True, slots=True)
class ShownHeader:
    """One header of a record."""

    name: str
    value: str | None


@dataclass(frozen=True, slots=True)
class ShownField:
    """A column's value in one record."""

    name: str
    value: str | None


@dataclass(frozen=True, slots=True)
class ShownRecord:
    """One record of a topic."""

    partition: int
    offset: int
    appended_ms: int
    key: str | None
    value: str | None
    """The row or the bytes, in one line; None for a tombstone."""
    bytes: int
    """Bytes of key and value, as stored."""
    operation: str | None
    """Debezium's letter; None for what is no event of a table."""
    committed_ms: int | None
    fields: list[ShownField]
    """The row after the change, where it is an event of a table."""
    headers: list[ShownHeader]
    """Only of a record that is shown alone."""
    problem: str
    """Why the record cannot be decoded; empty where it can, or need not."""


class RecordReader:
    """Decodes a topic's records under today's columns, without those that are hidden."""

    def __init__(
        self,
        log: Log,
        topic: str,
        shown: ShownTable | None,
        *,
        hides_bytes: bool = False,
        hides_events: bool = False,
    ) -> None:
        """`shown`: the table of the topic, if it is a table's. `hides_bytes`: records may hold rows
        of tables with hidden columns. `hides_events`: so may events, if it is no table's yet."""
        self._topic, self._shown, self._hides_bytes = topic, shown, hides_bytes
        self._hides_events = hides_events and shown is None
        self._decoder = RecordDecoder(log)
        self._is_ready = False

    @property
    def hides(self) -> bool:
        return self._hides_bytes or (self._shown is not None and bool(self._shown.hidden))

    async def read(
        self, place: TopicPartition, columns: RecordColumns, *, characters_max: int
    ) -> list[ShownRecord]:
        changes = await self._decode(place, columns)
        return [
            self._show(place, columns, row, changes, characters_max) for row in range(len(columns))
        ]

    async def _decode(
        self, place: TopicPartition, columns: RecordColumns
    ) -> dict[int, KeyChange | str]:
        """By offset: the change, or why there is none."""
        if self._shown is None:
            return {}
        if not self._is_ready:
            await self._decoder.look([self._topic])
            self._is_ready = True
        found: dict[int, KeyChange | str] = {}
        with_schema = [
            row for row in range(len(columns)) if _has_schema(columns.headers[row].as_py())
        ]
        chosen = pick(columns, with_schema)
        try:
            found |= {
                each.offset: each for each in await decode_changes(self._decoder, place, chosen)
            }
        except HeadwaterError:
            for row in with_schema:
                one = pick(columns, [row])
                try:
                    changes = await decode_changes(self._decoder, place, one)
                    found |= {each.offset: each for each in changes}
                except HeadwaterError as error:
                    found[int(columns.offsets[row])] = error.problem
        return found

    def _show(
        self,
        place: TopicPartition,
        columns: RecordColumns,
        row: int,
        changes: dict[int, KeyChange | str],
        characters_max: int,
    ) -> ShownRecord:
        key, value = columns.keys[row].as_py(), columns.values[row].as_py()
        offset = int(columns.offsets[row])
        record = ShownRecord(
            partition=place.partition,
            offset=offset,
            appended_ms=int(columns.timestamps_ms[row]),
            key=_text(key, characters_max),
            value=_text(value, characters_max),
            bytes=len(key or b"") + len(value or b""),
            operation=None,
            committed_ms=None,
            fields=[],
            headers=[],
            problem="",
        )
        change = changes.get(offset)
        if self._shown is not None and isinstance(change, KeyChange):
            row_text = None if change.row is None else self._shown.row(change.row)
            fields = [] if row_text is None else list(map(ShownField, self._shown.names, row_text))
            return replace(
                record,
                key=None if change.key is None else self._shown.key(change.key),
                value=None if self.hides else record.value,
                operation=change.operation,
                committed_ms=change.committed_ms,
                fields=fields,
            )
        problem = change if isinstance(change, str) else ""
        is_early = self._hides_events and _has_schema(columns.headers[row].as_py())
        if not self.hides and not is_early:
            return replace(record, problem=problem)
        return replace(
            record,
            key=None if key is None else HIDDEN,
            value=None if value is None else HIDDEN,
            problem=problem,
        )


def with_headers(record: ShownRecord, columns: RecordColumns, row: int) -> ShownRecord:
    pairs = header_lists(columns.headers.slice(row, 1)).to_pylist()[0]
    named = [ShownHeader(_name(each["key"]), _text(each["value"], 1 << 16)) for each in pairs]
    return replace(record, headers=named)


def pick(columns: RecordColumns, rows: Sequence[int]) -> RecordColumns:
    chosen = pa.array(rows, pa.int64())
    return RecordColumns(
        columns.offsets[list(rows)],
        columns.timestamps_ms[list(rows)],
        columns.keys.take(chosen),
        columns.values.take(chosen),
        columns.headers.take(chosen),
    )


def _has_schema(headers: bytes) -> bool:
    return SCHEMA_HEADER.encode() in headers


def _name(name: bytes) -> str:
    return name.decode(errors="backslashreplace")


def _text(content: bytes | None, characters_max: int) -> str | None:
    if content is None:
        return None
    if content == TRUNCATE_KEY:
        return "truncate"
    cut = content[: 4 * characters_max]
    try:  # the cut may have fallen into a character
        text = UTF8().decode(cut, len(cut) == len(content))
    except UnicodeDecodeError:
        text = shown_bytes(cut)
    return shorten(text, characters_max)
