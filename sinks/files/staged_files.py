"""The files of one slice while they are written aside, where no reader looks."""

import hashlib
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.core_log.foundation.disk_space import room_at
from headwater.core_log.foundation.errors import SinkRejected
from headwater.core_log.foundation.name_patterns import Pattern
from headwater.core_log.model.changes import TableChanges
from headwater.core_log.model.table_schema import TableId, TableSchema
from headwater.core_log.objects.directory import make_directory
from headwater.core_log.objects.store import SINK_ERRORS, ObjectStore
from headwater.sinks.files.formats import (
    AppendedRows,
    RowFile,
    ending_of,
    open_file,
    to_append_rows,
)
from headwater.sinks.files.manifest import OURS, CommittedFile
from headwater.sinks.files.settings import FilesSinkSettings
from headwater.sinks.object_names import hive_partition_directory, hive_table_directory

ROW_GROUP_BYTES = 8 << 20
DIGEST_BYTES = 8
SCRATCH = f"{OURS}/scratch"


class StagedFile(NamedTuple):
    """A whole file, and where it belongs."""

    file: CommittedFile
    path: Path


class FileTarget(NamedTuple):
    """The key of a file: it has rows of one schema for one directory."""

    directory: str
    table: TableId
    columns: pa.Schema


@dataclass(slots=True, eq=False)
class GrowingFile:
    """A file that is being written; rows wait until they are worth a row group."""

    target: FileTarget
    path: Path
    file: RowFile
    rows: int = 0
    waiting: list[pa.RecordBatch] = field(default_factory=list)
    waiting_bytes: int = 0

    def add(self, rows: pa.RecordBatch) -> None:
        self.waiting.append(rows)
        self.waiting_bytes += rows.nbytes
        self.rows += rows.num_rows

    def flush(self) -> None:
        if self.waiting:
            table = pa.Table.from_batches(self.waiting).combine_chunks()
            for batch in table.to_batches():
                self.file.write(batch)
            self.waiting, self.waiting_bytes = [], 0


class Staging:
    """`stem` begins every file's name and says which slice it is of. A digest of the content ends
    it: what a slice makes once more has the same name where it is the same, and never takes the
    place of another file where it was divided otherwise."""

    def __init__(self, scratch: Path, settings: FilesSinkSettings, *, stem: str) -> None:
        self._scratch, self._settings, self._stem = scratch, settings, stem
        self._tables = [(Pattern(text), each) for text, each in settings.tables.items()]
        self._growing: dict[FileTarget, GrowingFile] = {}
        self._staged: list[StagedFile] = []
        self._count = 0

    def add(self, changes: TableChanges) -> None:
        with room_at(self._scratch):
            self._add(changes)

    def _add(self, changes: TableChanges) -> None:
        part = to_append_rows(changes, has_metadata=self._settings.metadata_columns)
        table = changes.schema.table
        for partition, rows in divide(part, self._partition_by(table)):
            above = hive_table_directory(table)
            directory = f"{above}/{partition}" if partition else above
            self._append(FileTarget(directory, table, rows.schema), rows, part.schema)
        while self._waiting_bytes() > self._settings.buffer_bytes:
            max(self._growing.values(), key=lambda each: each.waiting_bytes).flush()

    def finish(self) -> list[StagedFile]:
        """Everything, whole; in the order of their names' numbers."""
        with room_at(self._scratch):
            for target in list(self._growing):
                self._close(target)
        return sorted(self._staged, key=lambda each: each.file.name)

    def abandon(self) -> None:
        """Leaves no file open."""
        for growing in self._growing.values():
            with suppress(OSError):  # its last bytes may not fit, and nobody reads them
                growing.file.close()
        self._growing.clear()

    def _append(self, target: FileTarget, rows: pa.RecordBatch, schema: TableSchema) -> None:
        roll = self._settings.roll
        while rows.num_rows:
            growing = self._growing.pop(target, None) or self._open(target, schema)
            self._growing[target] = growing  # the last one used stands last
            fitting = rows.slice(0, roll.rows - growing.rows)
            growing.add(fitting)
            rows = rows.slice(fitting.num_rows)
            if growing.waiting_bytes >= min(ROW_GROUP_BYTES, roll.size_bytes):
                growing.flush()
            if growing.rows >= roll.rows or growing.file.size() >= roll.size_bytes:
                self._close(target)

    def _open(self, target: FileTarget, schema: TableSchema) -> GrowingFile:
        if len(self._growing) >= self._settings.open_files_max:
            self._close(next(iter(self._growing)))
        self._count += 1
        path = self._scratch / f"{self._stem}-{self._count:05d}{ending_of(self._settings)}"
        return GrowingFile(target, path, open_file(path, schema, self._settings))

    def _close(self, target: FileTarget) -> None:
        growing = self._growing[target]
        growing.flush()
        growing.file.close()
        del self._growing[target]
        path, ending = growing.path, ending_of(self._settings)
        name = f"{path.name.removesuffix(ending)}-{digest_of(path)}{ending}"
        size = path.stat().st_size
        file = CommittedFile(target.table, f"{target.directory}/{name}", growing.rows, size)
        self._staged.append(StagedFile(file, path))

    def _waiting_bytes(self) -> int:
        return sum(each.waiting_bytes for each in self._growing.values())

    def _partition_by(self, table: TableId) -> tuple[str, ...]:
        found = (each for pattern, each in self._tables if pattern.matches(str(table)))
        settings = next(found, None)
        return settings.partition_by if settings else ()


def digest_of(path: Path) -> str:
    with path.open("rb") as file:
        found = hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=DIGEST_BYTES))
    return found.hexdigest()


def make_scratch(store: ObjectStore, *, sink: str, writer: str) -> Path:
    """Returns an empty local directory, inside the target if that is one, so that its files can be
    moved. It removes those of earlier writers of this sink that were killed; another sink of the
    same target may be writing."""
    if store.local_root is None:
        return Path(tempfile.mkdtemp(prefix=f"headwater-{writer}-"))
    own = store.local_root / SCRATCH / sink
    shutil.rmtree(own, ignore_errors=True)
    try:
        make_directory(own / writer)
    except OSError as error:
        raise SINK_ERRORS.refusal(
            "the disk refuses access",
            error,
            error.errno,
            path=store.address(SCRATCH),
            reason=str(error.strerror),
        ) from error
    return own / writer


def discard_scratch(scratch: Path) -> None:
    shutil.rmtree(scratch, ignore_errors=True)
    if scratch.parent.parent.name == SCRATCH.rpartition("/")[2]:
        with suppress(OSError):  # another writer has one, or has removed them all
            scratch.parent.rmdir()


def divide(part: AppendedRows, by: Sequence[str]) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Rows by directory, in the order they had."""
    rows = part.rows
    if not by:
        yield "", rows
        return
    if missing := [name for name in by if name not in rows.schema.names]:
        raise SinkRejected(
            "the table lacks columns that it should be partitioned by",
            hint="name columns of the table in tables.partition_by, or add them in transform",
            table=str(part.schema.table),
            columns=missing,
        )
    directories = [directories_of(rows.column(name), part.schema, name) for name in by]
    paths = pc.binary_join_element_wise(*directories, "/").dictionary_encode()
    codes = paths.indices.to_numpy()
    order = np.argsort(codes, kind="stable")
    ends = np.searchsorted(codes[order], np.arange(len(paths.dictionary) + 1))
    for code, path in enumerate(paths.dictionary.to_pylist()):
        theirs = order[ends[code] : ends[code + 1]]
        whole = len(theirs) == rows.num_rows
        yield path, rows if whole else rows.take(pa.array(theirs))


def directories_of(column: pa.Array, schema: TableSchema, name: str) -> pa.Array:
    """`column=value` of each row; escaped once per distinct value."""
    try:
        texts = column.cast(pa.string())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise SinkRejected(
            "values of this column cannot name directories",
            hint="partition by a column of texts, numbers, dates or times",
            table=str(schema.table),
            column=name,
        ) from error
    values = texts.dictionary_encode()
    names = pa.array(
        [hive_partition_directory(name, text) for text in values.dictionary.to_pylist()]
    )
    directories = names.cast(pa.string()).take(values.indices)
    return directories.fill_null(hive_partition_directory(name, None))
