"""Reading what the files sink has committed, and nothing else: `table(path, "public.orders")`."""

from pathlib import Path

import pyarrow as pa

from headwater.core_log.foundation.errors import SinkRejected
from headwater.core_log.s3.settings import S3Settings
from headwater.sinks.files.manifest import SINKS, CommittedFile, Manifest
from headwater.sinks.files.stores import FileStore, store_of


def files(path: str, name: str, *, s3: S3Settings | None = None) -> list[str]:
    """Where the files of a table lie, in the order in which they were committed, for DuckDB, Spark
    and the like."""
    store = store_of(path, s3 or S3Settings(), directory=Path())
    return [store.address(each.name) for each in committed_files(store, name)]


def table(path: str, name: str, *, s3: S3Settings | None = None) -> pa.Table:
    """A whole table, `schema.table` or the bare name where tables have no schema: every change in
    the order in which it was committed. Columns that a file lacks are null in its rows."""
    store = store_of(path, s3 or S3Settings(), directory=Path())
    parts = []
    for each in committed_files(store, name):
        content = store.read(each.name)
        if content is None:
            raise SinkRejected("a committed file is missing", file=store.address(each.name))
        parts.append(rows_of(each.name, content))
    return pa.concat_tables(parts, promote_options="permissive") if parts else pa.table({})


def committed_files(store: FileStore, name: str) -> list[CommittedFile]:
    named = (part.removeprefix(f"{SINKS}/") for part in store.names(SINKS))
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
