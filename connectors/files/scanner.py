"""Scans all files repeatedly and returns new content in batches."""

import re
from collections.abc import Collection, Generator, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath
from typing import TypeVar

from headwater.connectors.files import file_progress, schema_inference
from headwater.connectors.files.contents import BrokenFile, content_of, kind_of
from headwater.connectors.files.file_progress import FileState, ends_match, find_renamed
from headwater.connectors.files.file_reader import OpenedFile
from headwater.connectors.files.line_parser import FileBatch, FileOrigin
from headwater.connectors.files.schema_inference import InferredSchema, types_from_text
from headwater.connectors.files.settings import FileFormat, FilesSettings, InputCompression
from headwater.connectors.files.storage import FileEntry, FileStorage, RawFile, stem_of
from headwater.connectors.source import SnapshotProgress
from headwater.core_log.model.changes import ChangeBatch, Positions, Reject, TableChanges
from headwater.core_log.model.table_schema import TableId
from headwater.core_log.objects.store import ObjectGone
from headwater.core_log.rows.schema_text import parse_type

Value = TypeVar("Value")

FIELD = re.compile(r"\{(\w+)\}")


@dataclass(slots=True)
class PendingBatch:
    """A batch while it is filled, and the state before it."""

    tables: list[TableChanges] = field(default_factory=list)
    rejects: list[Reject] = field(default_factory=list)
    positions: dict[str, str] = field(default_factory=dict)
    bytes: int = 0
    bytes_by_table: dict[TableId, int] = field(default_factory=dict)
    states_before: dict[str, dict[str, FileState | None]] = field(default_factory=dict)
    """The states of the files of each table that has come."""
    types_before: dict[str, str | None] = field(default_factory=dict)

    def batch(self) -> ChangeBatch:
        return ChangeBatch(tuple(self.tables), self.positions, tuple(self.rejects))

    def drop(self, table: TableId) -> None:
        files = self.states_before.get(table.name, {})
        gone = {schema_inference.PART + table.name, *(file_progress.PART + each for each in files)}
        self.tables = [each for each in self.tables if each.schema.table != table]
        self.rejects = [each for each in self.rejects if each.table != table]
        self.positions = {part: at for part, at in self.positions.items() if part not in gone}


class DirectoryScanner:
    """Scans a directory. It keeps the state of each file; the emitted part of it is in the source
    position."""

    def __init__(
        self,
        settings: FilesSettings,
        storage: FileStorage,
        origin: FileOrigin,
        resume_from: Positions,
    ) -> None:
        self._settings, self._storage, self._origin = settings, storage, origin
        self._states: dict[str, FileState] = {}
        self._stored_types: dict[str, str] = {}
        self._inferred_schemas: dict[str, InferredSchema] = {}
        self._waiting: dict[str, FileEntry] = {}  # waiting for the end of their last line
        self._newest = PendingBatch()
        self._left_out: set[str] = set()  # tables, until the next scan
        self.tables: AbstractSet[TableId] = frozenset()
        """As the newest scan found them."""
        self.progress = FileSnapshotProgress()
        for part, text in resume_from.items():
            if part.startswith(file_progress.PART):
                self._states[part.removeprefix(file_progress.PART)] = FileState.from_text(text)
            elif part.startswith(schema_inference.PART):
                self._stored_types[part.removeprefix(schema_inference.PART)] = text

    def batches(self, *, now_ms: int, is_last: bool) -> Generator[ChangeBatch, None, None]:
        """Yields the batches of one scan. `is_last`: no file will grow."""
        tracked = set[str]()
        if not self._storage.has_whole_files:
            tracked = {each.identity for each in self._states.values() if not each.moved_to}
        entries = self._entries(tracked)
        moved = set[str]()
        if tracked:
            changed = self._follow(entries)
            moved = {name for name, state in changed.items() if state.identity}
            if changed:
                positions = {
                    file_progress.PART + name: each.to_text() for name, each in changed.items()
                }
                yield ChangeBatch((), positions)
        readable = [entry for entry in entries if self.can_read(entry)]
        self.tables = {TableId("", self.table_of(entry)) for entry in readable}
        filling = self._newest = PendingBatch()
        self._left_out.clear()
        self.progress.begin(self._expect(entries))
        for entry in self._in_order(entries, moved):
            if self.table_of(entry) in self._left_out:
                continue
            for file_batch in self._read_file(entry, now_ms=now_ms, is_last=is_last):
                self._add(filling, entry, file_batch)
                if filling.bytes >= self._settings.batch_bytes:
                    yield filling.batch()
                    filling = self._newest = PendingBatch()
                    if self.table_of(entry) in self._left_out:
                        break
        if filling.positions:
            yield filling.batch()
        self.progress.end([TableId("", each) for each in self._left_out])

    def leave_out(self, tables: Iterable[TableId]) -> ChangeBatch:
        """Returns the newest batch without these tables, as if they had not been read; it emits
        nothing more of them."""
        newest = self._newest
        for table in tables:
            self._left_out.add(table.name)
            rows = sum(len(each) for each in newest.tables if each.schema.table == table)
            self.progress.take_back(
                table, rows=rows, bytes_read=newest.bytes_by_table.get(table, 0)
            )
            newest.drop(table)
            _restore(self._states, newest.states_before.get(table.name, {}))
            for name in newest.states_before.get(table.name, {}):
                self._waiting.pop(name, None)
            if table.name in newest.types_before:
                _restore(self._stored_types, {table.name: newest.types_before[table.name]})
            self._inferred_schemas.pop(table.name, None)
        return newest.batch()

    def can_read(self, entry: FileEntry) -> bool:
        """Whether the name or a setting gives the format."""
        return self._kind(entry)[0] is not None

    def sample(self, entry: FileEntry) -> Iterator[FileBatch]:
        """Reads the file from its start; only the columns of its table are kept."""
        return self._read_file(entry, now_ms=0, is_last=True)

    def row_estimates(self) -> dict[TableId, int]:
        """Estimates rows from the sizes of files and the row length at the start of each table's
        first file."""
        rows_per_byte, found = dict[str, float](), dict[TableId, int]()
        for entry in self._storage.entries(()):
            table, (format, compression) = self.table_of(entry), self._kind(entry)
            if format is not None and table not in rows_per_byte:
                rows_per_byte[table] = self._density(entry, format, compression)
            rows = round(entry.size * rows_per_byte.get(table, 0))
            found[TableId("", table)] = found.get(TableId("", table), 0) + rows
        return found

    def table_of(self, entry: FileEntry) -> str:
        if not self._settings.table:
            return self._storage.default_table
        path = PurePosixPath(entry.name)
        directory = path.parent.name or PurePosixPath(entry.object.name).parent.name
        names = {"stem": stem_of(path.name), "directory": directory}
        return FIELD.sub(lambda found: names.get(found[1], found[0]), self._settings.table)

    def _density(
        self, entry: FileEntry, format: FileFormat, compression: InputCompression
    ) -> float:
        try:
            raw = self._storage.open(entry)
        except ObjectGone:
            return 0
        try:
            return rows_per_byte_of(raw, format, compression)
        finally:
            raw.close()

    def _entries(self, tracked: Collection[str]) -> list[FileEntry]:
        """Lists the files twice: a file that is renamed during one listing can be missing under
        both names, and its successor would then count as a rewritten file."""
        entries = self._storage.entries(tracked)
        there = {entry.identity for entry in entries}
        names = {entry.name for entry in entries}
        if any(
            name in names and state.identity in tracked and state.identity not in there
            for name, state in self._states.items()
        ):
            return self._storage.entries(tracked)
        return entries

    def _follow(self, entries: list[FileEntry]) -> dict[str, FileState]:
        """Moves the state of renamed files to the new names; returns the changes. A name that
        another file has now starts again."""
        listed = {entry.name for entry in entries}
        moves = [
            (each, self._states[each.old_name])
            for each in find_renamed(entries, self._states)
            if self._is_what_was_read(each.entry, self._states[each.old_name])
        ]
        moves.sort(key=lambda move: move[1].modified_us)
        moves = list({each.entry.name: (each, state) for each, state in moves}.values())  # newest
        changed: dict[str, FileState] = {}
        for each, _ in moves:
            is_taken = each.old_name in listed
            changed[each.old_name] = FileState(moved_to="" if is_taken else each.entry.name)
        for each, state in moves:
            changed[each.entry.name] = state
        self._states |= changed
        return changed

    def _is_what_was_read(self, entry: FileEntry, state: FileState) -> bool:
        """Checks the content: an inode is used again once its file is deleted."""
        has_grown = state.position > 0 and entry.size > state.size  # Parquet files never grow
        if not has_grown and (entry.size, entry.modified_us) != (state.size, state.modified_us):
            return False
        _, compression = self._kind(entry)
        try:
            raw = self._storage.open(entry)
        except ObjectGone:
            return False
        try:
            return ends_match(state, content_of(raw, compression))
        except BrokenFile:
            return False
        finally:
            raw.close()

    def _in_order(self, entries: list[FileEntry], moved: set[str]) -> list[FileEntry]:
        """Sorts the files. Renamed files come first, because others may have taken their names.
        After a restart they are among the files that were begun."""
        by_time = self._settings.order == "modified"
        return sorted(
            entries,
            key=lambda entry: (
                entry.name not in moved and not self._is_begun(entry),
                entry.modified_us if by_time else 0,
                entry.name,
            ),
        )

    def _is_begun(self, entry: FileEntry) -> bool:
        state = self._states.get(entry.name, FileState())
        return (
            bool(state.position + state.rows)
            and not state.is_done
            and (state.identity == entry.identity)
        )

    def _read_file(self, entry: FileEntry, *, now_ms: int, is_last: bool) -> Iterator[FileBatch]:
        state = self._states.get(entry.name, FileState())
        format, compression = self._kind(entry)
        if state.is_done and state.is_as_listed(entry):
            return
        if format is None or (not entry.is_wanted and state.identity != entry.identity):
            return
        if not entry.size and not state.position:
            return
        is_whole = is_last or self._storage.has_whole_files
        is_final = is_whole or self._has_settled(entry, now_ms)
        if not is_final and self._waiting.get(entry.name) == entry:
            return
        self._waiting.pop(entry.name, None)
        try:
            raw = self._storage.open(entry)
        except ObjectGone:
            return
        try:
            opened = OpenedFile(
                raw,
                self.inferred_schema_of(entry),
                self._settings,
                self._origin,
                format=format,
                compression=compression,
                # A write since the listing may have ended in the middle of a line.
                is_final=is_whole or self._has_settled(raw.entry, now_ms),
            )
            for file_batch in opened.batches(state):
                state = file_batch.state
                yield file_batch
            if not state.is_done:
                self._waiting[entry.name] = entry
        except ObjectGone:
            return
        finally:
            raw.close()

    def _has_settled(self, entry: FileEntry, now_ms: int) -> bool:
        return now_ms - entry.modified_us // 1_000 >= self._settings.settle_ms

    def _add(self, filling: PendingBatch, entry: FileEntry, file_batch: FileBatch) -> None:
        part, before = file_progress.PART + entry.name, self._states.get(entry.name, FileState())
        states_before = filling.states_before.setdefault(self.table_of(entry), {})
        states_before.setdefault(entry.name, self._states.get(entry.name))
        self._states[entry.name] = file_batch.state
        is_finished = file_batch.state.is_done and file_batch.state != before
        if file_batch.changes is not None:
            filling.tables.append(file_batch.changes)
            table = file_batch.changes.schema.table
            read = filling.bytes_by_table.get(table, 0)
            filling.bytes_by_table[table] = read + file_batch.bytes
            self.progress.add(file_batch.changes, file_batch.bytes)
        if file_batch.changes or file_batch.rejects or is_finished or part in filling.positions:
            filling.positions[part] = file_batch.state.to_text()
            self._add_inferred(filling, self.inferred_schema_of(entry))
        filling.rejects += file_batch.rejects
        filling.bytes += file_batch.bytes

    def _add_inferred(self, filling: PendingBatch, inferred: InferredSchema) -> None:
        if self._settings.columns:
            return
        text = inferred.to_text()
        if (before := self._stored_types.get(inferred.table.name)) != text:
            filling.types_before.setdefault(inferred.table.name, before)
            self._stored_types[inferred.table.name] = text
            filling.positions[schema_inference.PART + inferred.table.name] = text

    def inferred_schema_of(self, entry: FileEntry) -> InferredSchema:
        name = self.table_of(entry)
        if name not in self._inferred_schemas:
            given = {each: parse_type(text) for each, text in self._settings.columns.items()}
            stored = self._stored_types.get(name)
            self._inferred_schemas[name] = InferredSchema(
                TableId("", name),
                given or (types_from_text(stored) if stored else {}),
                key=self._settings.key,
                grows=not given and self._settings.new_columns == "add",
            )
        return self._inferred_schemas[name]

    def _expect(self, entries: list[FileEntry]) -> dict[str, int | None]:
        """Returns the remaining bytes of each table; None if compression hides them."""
        expected: dict[str, int | None] = {}
        for entry in entries:
            state = self._states.get(entry.name, FileState())
            format, compression = self._kind(entry)
            if format is None or not entry.is_wanted or state.is_done:
                continue
            table = self.table_of(entry)
            left, is_plain = expected.get(table, 0), format != "parquet" and compression == "none"
            known = left is not None and is_plain
            expected[table] = (left or 0) + entry.size - state.position if known else None
        return expected

    def _kind(self, entry: FileEntry) -> tuple[FileFormat | None, InputCompression]:
        format, compression = kind_of(entry.name)
        if self._settings.format != "auto":
            format = self._settings.format
        if self._settings.compression != "auto":
            compression = self._settings.compression
        return format, "none" if format == "parquet" else compression


def _restore(values: dict[str, Value], before: Mapping[str, Value | None]) -> None:
    for name, value in before.items():
        if value is None:
            values.pop(name, None)
        else:
            values[name] = value


HEAD_BYTES = 64 << 10
PACKED = 5
"""Factor by which text grows when it is decompressed."""


def rows_per_byte_of(raw: RawFile, format: FileFormat, compression: InputCompression) -> float:
    """Returns rows per stored byte of the file; None for an empty or broken one."""
    try:
        if format == "parquet":
            return _row_count(raw) / max(raw.entry.size, 1)
        head = content_of(raw, compression).read(0, HEAD_BYTES)
    except BrokenFile:
        return 0
    density = head.count(b"\n") / max(len(head), 1)
    return density if compression == "none" else density * PACKED


def _row_count(raw: RawFile) -> int:
    import pyarrow as pa
    from pyarrow import parquet

    from headwater.connectors.files.parquet_rows import UnorderedRows

    try:
        return int(
            parquet.ParquetFile(pa.PythonFile(UnorderedRows(raw), mode="r")).metadata.num_rows
        )
    except (pa.ArrowInvalid, OSError) as error:
        raise BrokenFile("the file is not a complete Parquet file") from error


class FileSnapshotProgress:
    """Progress of the first scan; later content does not count as a snapshot."""

    def __init__(self) -> None:
        self._tables: dict[TableId, SnapshotProgress] | None = None
        self._has_ended = False
        self._news: set[TableId] = set()

    def begin(self, expected: Mapping[str, int | None]) -> None:
        if self._tables is None:
            tables = [(TableId("", name), left) for name, left in expected.items()]
            self._tables = {
                table: SnapshotProgress(table, 0, None, 0, left) for table, left in tables
            }

    def add(self, changes: TableChanges, bytes_read: int) -> None:
        table = changes.schema.table
        if self._has_ended or self._tables is None:
            return
        so_far = self._tables.get(table, SnapshotProgress(table, 0, None, 0))
        if so_far.is_done:
            return
        self._tables[table] = replace(
            so_far, rows=so_far.rows + len(changes), bytes=(so_far.bytes or 0) + bytes_read
        )
        self._news.add(table)

    def take_back(self, table: TableId, *, rows: int, bytes_read: int) -> None:
        """They were not handed on."""
        if not self._has_ended and self._tables is not None and table in self._tables:
            before = self._tables[table]
            left = (before.bytes or 0) - bytes_read
            self._tables[table] = replace(before, rows=before.rows - rows, bytes=left)

    def end(self, left_out: Collection[TableId] = ()) -> None:
        """`held`: tables that have yet to be read."""
        if not self._has_ended and self._tables is not None:
            self._has_ended, self._news = not left_out, set(self._tables)
            self._tables = {
                table: each if table in left_out else replace(each, is_done=True)
                for table, each in self._tables.items()
            }

    def news(self) -> Iterable[SnapshotProgress]:
        news, self._news = self._news, set()
        return [(self._tables or {})[table] for table in sorted(news)]
