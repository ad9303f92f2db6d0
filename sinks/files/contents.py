"""What the changes in a table's files amount to: the newest row of every key still there."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from core_log.errors import SinkRejected
from core_log.table_schema import TableSchema
from sinks.files.manifest import Commit, Manifest
from sinks.files.reading import rows_of
from sinks.files.settings import FilesSinkSettings
from sinks.files.stores import Store
from sinks.latest import newest

OP = "_headwater_op"


def check_readable(settings: FilesSinkSettings, schema: TableSchema) -> None:
    """Raises where what was written does not say enough to be compared."""
    if settings.format != "parquet":
        raise SinkRejected(
            "only Parquet files give values back as they were written",
            table=str(schema.table),
            format=settings.format,
        )
    if not settings.metadata_columns:
        raise SinkRejected(
            "without metadata columns nothing tells a delete from a row",
            hint="set `metadata_columns: true`, and replay the table into a new place",
            table=str(schema.table),
        )


def current_rows(
    store: Store, manifest: Manifest, head: Commit, schema: TableSchema
) -> pa.RecordBatch:
    """As of a commit. Files are read in the order of their commits, in which the changes of a key
    follow one another, and a truncate follows all that it takes away."""
    parts = [
        _read(store, file.name, schema)
        for commit in manifest.commits()
        for file in commit.files
        if commit.sequence <= head.sequence and file.table == schema.table
    ]
    if not parts:
        return pa.RecordBatch.from_pylist([], schema=schema.arrow)
    changes = pa.concat_tables(parts).combine_chunks()
    truncates = np.flatnonzero(np.asarray(pc.equal(changes[OP], "t").combine_chunks()))
    if len(truncates):
        changes = changes.slice(int(truncates[-1]) + 1)
    rows = next(iter(changes.combine_chunks().to_batches()), None)
    if rows is None:
        return pa.RecordBatch.from_pylist([], schema=schema.arrow)
    places = newest(rows.select(list(schema.key)))
    rows = rows if places is None else rows.take(places)
    return rows.filter(pc.not_equal(rows.column(OP), "d")).select(schema.names)


def _read(store: Store, name: str, schema: TableSchema) -> pa.Table:
    """A file in the schema of now: what it lacks is null."""
    content = store.read(name)
    if content is None:
        raise SinkRejected("a committed file is missing", file=store.address(name))
    found = rows_of(name, content)
    columns = [
        found[field.name].cast(field.type)
        if field.name in found.column_names
        else pa.nulls(found.num_rows, field.type)
        for field in schema.arrow
    ]
    return pa.table([*columns, found[OP].cast(pa.string())], names=[*schema.names, OP])
