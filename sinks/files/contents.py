"""The result of the changes in a table's files: the newest row of every key still there."""

from collections.abc import Iterator, Sequence

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from headwater.core_log.foundation.errors import RowsRejected, SinkRejected
from headwater.core_log.model.table_schema import Column, TableSchema
from headwater.core_log.objects.store import ObjectStore
from headwater.core_log.rows.converters.row import RowConverters
from headwater.core_log.rows.json.debezium import read_rows
from headwater.sinks.files.formats import READABLE, rows_of
from headwater.sinks.files.manifest import Manifest, ManifestCommit
from headwater.sinks.files.settings import FilesSinkSettings
from headwater.sinks.files.staged_files import ADDED, OPERATION
from headwater.sinks.fold import CurrentRows

COMPRESSIONS = {"gz": "gzip", "st": "zstd"}
"""By the end of a file's name."""


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
        found = _read(store, name, schema, (*schema.key, OPERATION))
        current.take(found.select(list(schema.key)), found.column(OPERATION))
    return current.of(_read(store, name, schema, schema.names) for name in names)


def _read(
    store: ObjectStore, name: str, schema: TableSchema, wanted: Sequence[str]
) -> pa.RecordBatch:
    """A file in the schema of now: what it lacks is null."""
    content = store.read(name)
    if content is None:
        raise SinkRejected("a committed file is missing", file=store.address(name))
    if name.endswith(".parquet"):
        found = rows_of(name, content).combine_chunks()
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
    compression = COMPRESSIONS.get(name[-2:])
    if compression is not None:
        stream = pa.CompressedInputStream(pa.BufferReader(content), compression)
        content = stream.read()
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
