"""One file while it is written: batches of rows of one schema, as Parquet or JSON lines."""

from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa

from headwater.core_log.foundation.errors import SinkRejected
from headwater.core_log.model.table_schema import TableSchema
from headwater.core_log.objects.settings import S3Settings
from headwater.core_log.objects.store import SINK_ERRORS, ObjectStore, names_below, store_of
from headwater.core_log.rows.converters.row import RowConverters
from headwater.core_log.rows.json.writer import join, object_parts
from headwater.core_log.rows.settings import WireSettings
from headwater.sinks.files.manifest import SINKS, CommittedFile, Manifest
from headwater.sinks.files.settings import FilesSinkSettings

READABLE = WireSettings(value="flat-json", decimal="string", time="isostring")
SAMPLE_ROWS = 2_000
ENDINGS = {"none": "", "gzip": ".gz", "zstd": ".zst"}


class RowFile(Protocol):
    """Closing it makes it whole."""

    def write(self, rows: pa.RecordBatch) -> None: ...
    def size(self) -> int:
        """About how many bytes it has by now."""
        ...

    def close(self) -> None: ...


class ParquetFile:
    """Every write becomes a row group."""

    def __init__(self, path: Path, schema: TableSchema, *, compression: str) -> None:
        self._sink = pa.OSFile(str(path), "wb")
        self._schema, self._compression = schema.arrow, compression
        self._writer: Any = None

    def write(self, rows: pa.RecordBatch) -> None:
        if self._writer is None:
            self._writer = self._open(rows)
        self._writer.write_batch(rows)

    def size(self) -> int:
        return int(self._sink.tell())

    def close(self) -> None:
        if self._writer is None:
            self._writer = self._open(pa.RecordBatch.from_pylist([], self._schema))
        self._writer.close()
        self._sink.close()

    def _open(self, rows: pa.RecordBatch) -> Any:
        from pyarrow import parquet

        return parquet.ParquetWriter(
            self._sink,
            self._schema,
            compression=self._compression,
            use_dictionary=repeating(rows),
        )


class JsonFile:
    def __init__(self, path: Path, schema: TableSchema, *, compression: str) -> None:
        self._forms = RowConverters.of(schema, READABLE)
        self._raw = pa.OSFile(str(path), "wb")
        is_plain = compression == "none"
        self._sink = self._raw if is_plain else pa.CompressedOutputStream(self._raw, compression)

    def write(self, rows: pa.RecordBatch) -> None:
        texts = self._forms.to_json(rows)
        lines = join([*object_parts(list(texts), texts.values()), b"\n"], rows.num_rows)
        self._sink.write(characters_of(lines))

    def size(self) -> int:
        return int(self._raw.tell())

    def close(self) -> None:
        if self._sink is not self._raw:
            self._sink.close()
        self._raw.close()


def repeating(rows: pa.RecordBatch) -> bool | list[str]:
    """The columns that are worth a dictionary, by their first values: looking every value up costs
    more than writing it where most of them are new. The writer itself finds out for nested ones."""
    if any(pa.types.is_nested(kind) for kind in rows.schema.types):
        return True
    first = rows.slice(0, SAMPLE_ROWS)
    return [
        name
        for name, column in zip(first.schema.names, first.columns, strict=True)
        if not pa.types.is_boolean(column.type) and 2 * len(column.unique()) <= len(column)
    ]


def characters_of(lines: pa.Array) -> pa.Buffer:
    """The texts of a column behind each other, as they lie in memory."""
    if not len(lines):
        return pa.py_buffer(b"")
    _, offsets, characters = lines.buffers()
    ends = pa.Array.from_buffers(pa.int32(), len(lines) + 1, [None, offsets], offset=lines.offset)
    first, last = ends[0].as_py(), ends[-1].as_py()
    return characters.slice(first, last - first)


def ending_of(settings: FilesSinkSettings) -> str:
    if settings.format == "parquet":
        return ".parquet"
    return ".jsonl" + ENDINGS[compression_of(settings)]


def compression_of(settings: FilesSinkSettings) -> str:
    default = "zstd" if settings.format == "parquet" else "none"
    return settings.compression or default


def open_file(path: Path, schema: TableSchema, settings: FilesSinkSettings) -> RowFile:
    kind = ParquetFile if settings.format == "parquet" else JsonFile
    return kind(path, schema, compression=compression_of(settings))


def files(path: str, name: str, *, s3: S3Settings | None = None) -> list[str]:
    """Where the files of a table lie, in the order in which they were committed, for DuckDB, Spark
    and the like."""
    store = store_of(path, s3 or S3Settings(), directory=Path(), errors=SINK_ERRORS)
    return [store.address(each.name) for each in committed_files(store, name)]


def table(path: str, name: str, *, s3: S3Settings | None = None) -> pa.Table:
    """A whole table, `schema.table` or the bare name where tables have no schema: every change in
    the order in which it was committed. Columns that a file lacks are null in its rows."""
    store = store_of(path, s3 or S3Settings(), directory=Path(), errors=SINK_ERRORS)
    parts = []
    for each in committed_files(store, name):
        content = store.read(each.name)
        if content is None:
            raise SinkRejected("a committed file is missing", file=store.address(each.name))
        parts.append(rows_of(each.name, content))
    return pa.concat_tables(parts, promote_options="permissive") if parts else pa.table({})


def committed_files(store: ObjectStore, name: str) -> list[CommittedFile]:
    named = (part.removeprefix(f"{SINKS}/") for part in names_below(store, SINKS))
    sinks = {part.partition("/")[0] for part in named}
    return [
        each
        for sink in sorted(sinks)
        for commit in Manifest(store, sink).commits()
        for each in commit.files
        if str(each.table) == name
    ]


def rows_of(name: str, content: bytes) -> pa.Table:
    if name.endswith(".parquet"):
        from pyarrow import parquet

        return parquet.read_table(pa.BufferReader(content), partitioning=None)
    from pyarrow import json

    compression = {"gz": "gzip", "st": "zstd"}.get(name[-2:])
    stream = pa.BufferReader(content)
    if compression is not None:
        return json.read_json(pa.CompressedInputStream(stream, compression))
    return json.read_json(stream)
