"""Files of rows of one schema, as Parquet or JSON lines: how they are written, and read back as the
state of a table."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from headwater.core_log.foundation.errors import RowsRejected, SinkRejected
from headwater.core_log.model.changes import TableChanges, op_codes
from headwater.core_log.model.table_schema import Column, TableSchema
from headwater.core_log.objects.settings import S3Settings
from headwater.core_log.objects.store import SINK_ERRORS, ObjectStore, names_below, store_of
from headwater.core_log.rows.converters.row import RowConverters
from headwater.core_log.rows.json.debezium import read_rows
from headwater.core_log.rows.json.writer import join, object_parts
from headwater.core_log.rows.settings import WireSettings
from headwater.sinks.files.manifest import SINKS, CommittedFile, Manifest, ManifestCommit
from headwater.sinks.files.settings import FilesSinkSettings
from headwater.sinks.fold import CurrentRows
from headwater.sinks.object_names import COMMITTED_AT, OFFSET, OP

READABLE = WireSettings(value="flat-json", decimal="string", time="isostring")
SAMPLE_ROWS = 2_000
ENDINGS = {"none": "", "gzip": ".gz", "zstd": ".zst"}
COMPRESSIONS = {"gz": "gzip", "st": "zstd"}
"""By the end of a file's name."""
ADDED = (
    Column(OP, pa.string()),
    Column(OFFSET, pa.int64()),
    Column(COMMITTED_AT, pa.timestamp("us", "UTC")),
)


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
    return [store.address(each.name) for each in _committed_files(store, name)]


def table(path: str, name: str, *, s3: S3Settings | None = None) -> pa.Table:
    """A whole table, `schema.table` or the bare name where tables have no schema: every change in
    the order in which it was committed. Columns that a file lacks are null in its rows."""
    store = store_of(path, s3 or S3Settings(), directory=Path(), errors=SINK_ERRORS)
    parts = [
        _rows_of(each.name, _content_of(store, each.name)) for each in _committed_files(store, name)
    ]
    return pa.concat_tables(parts, promote_options="permissive") if parts else pa.table({})


def _committed_files(store: ObjectStore, name: str) -> list[CommittedFile]:
    named = (part.removeprefix(f"{SINKS}/") for part in names_below(store, SINKS))
    sinks = {part.partition("/")[0] for part in named}
    return [
        each
        for sink in sorted(sinks)
        for commit in Manifest(store, sink).commits()
        for each in commit.files
        if str(each.table) == name
    ]


def _content_of(store: ObjectStore, name: str) -> bytes:
    """Without compression, except for the one inside Parquet."""
    content = store.read(name)
    if content is None:
        raise SinkRejected("a committed file is missing", file=store.address(name))
    compression = COMPRESSIONS.get(name[-2:])
    if compression is None:
        return content
    whole: bytes = pa.CompressedInputStream(pa.BufferReader(content), compression).read()
    return whole


def _rows_of(name: str, content: bytes) -> pa.Table:
    if name.endswith(".parquet"):
        from pyarrow import parquet

        return parquet.read_table(pa.BufferReader(content), partitioning=None)
    from pyarrow import json

    return json.read_json(pa.BufferReader(content))


class AppendedRows(NamedTuple):
    schema: TableSchema
    rows: pa.RecordBatch


def to_append_rows(changes: TableChanges, *, has_metadata: bool) -> AppendedRows:
    """No key, and every column can be null: of deletes and truncates only little is known."""
    columns = tuple(Column(each.name, each.type) for each in changes.schema.columns)
    arrays = list(changes.rows.columns)
    if has_metadata:
        if taken := {OP, OFFSET, COMMITTED_AT} & set(changes.schema.names):
            raise SinkRejected(
                "a column has the name of one that this sink adds",
                hint="rename it in transform, or set metadata_columns: false",
                table=str(changes.schema.table),
                columns=sorted(taken),
            )
        assert changes.log_offsets is not None, "changes of a slice have offsets"
        columns += ADDED
        arrays += [
            op_codes(changes.operations),
            changes.log_offsets,
            changes.committed_us.cast(pa.timestamp("us", "UTC")),
        ]
    schema = TableSchema(changes.schema.table, columns, ())
    return AppendedRows(schema, pa.RecordBatch.from_arrays(arrays, schema=schema.arrow))


def check_readable(settings: FilesSinkSettings, schema: TableSchema) -> None:
    """Raises where what was written does not say enough to be compared."""
    if schema.key and not settings.metadata_columns:
        raise SinkRejected(
            "files without metadata columns do not tell a delete from a row",
            hint="set `metadata_columns: true`, and replay the table into a new place",
            table=str(schema.table),
        )


def current_rows(
    store: ObjectStore, manifest: Manifest, head: ManifestCommit, schema: TableSchema
) -> Iterator[pa.RecordBatch]:
    """As of a commit, a file at a time. Files are read in the order of their commits, in which the
    changes of a key follow one another, and a truncate follows all that it takes away. Every change
    of a table without a key is a row."""
    names = [
        file.name
        for commit in manifest.commits()
        for file in commit.files
        if commit.sequence <= head.sequence and file.table == schema.table
    ]
    if not schema.key:
        return (_read(store, name, schema, schema.names) for name in names)
    current = CurrentRows()
    for name in names:
        found = _read(store, name, schema, (*schema.key, OP))
        current.take(found.select(list(schema.key)), found.column(OP))
    return current.of(_read(store, name, schema, schema.names) for name in names)


def _read(
    store: ObjectStore, name: str, schema: TableSchema, wanted: Sequence[str]
) -> pa.RecordBatch:
    """A file in the schema of now: what it lacks is null."""
    content = _content_of(store, name)
    if name.endswith(".parquet"):
        found = _rows_of(name, content).combine_chunks()
    else:
        found = _lines(name, content, schema)
    present, types = set(found.column_names), {field.name: field.type for field in schema.arrow}
    columns = [
        found[each].cast(types.get(each, pa.string())).combine_chunks()
        if each in present
        else pa.nulls(found.num_rows, types.get(each, pa.string()))
        for each in wanted
    ]
    arrays = [pa.concat_arrays(e.chunks) if isinstance(e, pa.ChunkedArray) else e for e in columns]
    return pa.RecordBatch.from_arrays(arrays, names=list(wanted))


def _lines(name: str, content: bytes, schema: TableSchema) -> pa.Table:
    """As strictly as the log itself is read, so that all columns of a file have to be known. Its
    lines have the same columns."""
    first, _, _ = content.partition(b"\n")
    if not first:
        return pa.table({})
    texts = pc.split_pattern(pa.array([content.rstrip(b"\n")], pa.large_binary()), b"\n")
    columns = [Column(each.name, each.type) for each in (*schema.columns, *ADDED)]
    try:
        there = orjson.loads(first).keys()
        chosen = tuple(each for each in columns if each.name in there)
        forms = RowConverters.of(TableSchema(schema.table, chosen, ()), READABLE)
        return pa.Table.from_batches([read_rows(texts.flatten().cast(pa.string()), forms)])
    except (RowsRejected, ValueError) as error:
        raise SinkRejected(
            "a file holds lines that are no rows of the table",
            table=str(schema.table),
            file=name,
            hint="another program has written to it: replay the table into a new place",
        ) from error
