"""Reads row groups of a Parquet file as columns, in parts that fit into memory."""

import io
from collections.abc import Iterator

import pyarrow as pa
from pyarrow import parquet

from headwater.connectors.files.contents import BrokenFile
from headwater.connectors.files.line_parser import as_batch
from headwater.connectors.files.schema_inference import InferredSchema, settled_type
from headwater.connectors.files.storage import RawFile
from headwater.core_log.foundation.errors import DecodeError
from headwater.core_log.rows.rejects import misfit, scalar_class
from headwater.core_log.rows.schema_text import type_text

BUFFER_BYTES = 1 << 20
"""Bytes of each column that are read at a time."""


class ParquetRows:
    """One file, which must be complete: its index is at its end."""

    def __init__(self, raw: RawFile, inferred: InferredSchema) -> None:
        self._inferred = inferred
        try:
            self._file = parquet.ParquetFile(
                pa.PythonFile(UnorderedRows(raw), mode="r"),
                pre_buffer=False,
                buffer_size=BUFFER_BYTES,
                thrift_string_size_limit=1 << 28,
                thrift_container_size_limit=1 << 24,
            )
        except (pa.ArrowInvalid, OSError) as error:
            raise BrokenFile("the file is not a complete Parquet file") from error

    @property
    def row_count(self) -> int:
        return int(self._file.metadata.num_rows)

    def batches(self, *, from_row: int, batch_bytes: int) -> Iterator[pa.RecordBatch]:
        """Yields rows from that one on, in the columns of the table; new columns are added."""
        if not self._inferred.is_closed:
            self._inferred.add(self._new_types())
        metadata, first = self._file.metadata, 0
        wanted = [name for name in self._file.schema_arrow.names if name in self._inferred.types]
        if not wanted:
            raise BrokenFile("the file has none of the columns of the table")
        for group in range(metadata.num_row_groups):
            rows = metadata.row_group(group).num_rows
            if rows and from_row < first + rows:
                row_bytes = max(1, metadata.row_group(group).total_byte_size // rows)
                batch_rows = max(1, min(rows, batch_bytes // row_bytes))
                yield from self._group(group, wanted, max(0, from_row - first), batch_rows)
            first += rows

    def _group(
        self, group: int, wanted: list[str], skipped: int, batch_rows: int
    ) -> Iterator[pa.RecordBatch]:
        found = self._file.iter_batches(
            batch_size=batch_rows, row_groups=[group], columns=wanted, use_threads=False
        )
        try:
            for batch in found:
                rest = batch.slice(skipped)
                skipped -= batch.num_rows - rest.num_rows
                if rest.num_rows:
                    yield self._conform(rest)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, OSError) as error:
            raise BrokenFile("the file is damaged, or has columns that cannot be read") from error

    def _conform(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        types = self._inferred.types
        names = batch.schema.names
        rows = pa.table({name: _cast(batch.column(name), types[name], name) for name in names})
        return as_batch(rows, self._inferred)

    def _new_types(self) -> dict[str, pa.DataType]:
        schema = self._file.schema_arrow
        if len(set(schema.names)) < len(schema.names):
            raise BrokenFile("two columns have the same name")
        try:
            return {field.name: settled_type(field.type) for field in schema}
        except DecodeError as error:
            raise BrokenFile(f"{error.problem}: {error.facts['type']}") from error


def _cast(column: pa.Array, kind: pa.DataType, name: str) -> pa.Array:
    """Casts; raises BrokenFile with the class of the first value that does not fit, never the
    value."""
    try:
        return column.cast(kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        bad = next((each for each in column if not _fits(each, kind)), column[0])
        value = bad.as_py() if isinstance(bad, pa.StringScalar) else None
        if value is not None:
            raise BrokenFile(misfit(f"column {name}", kind, value)) from error
        problem = f"column {name} is {type_text(kind)} and the value is {scalar_class(bad, kind)}"
        raise BrokenFile(problem) from error


def _fits(scalar: pa.Scalar, kind: pa.DataType) -> bool:
    try:
        scalar.cast(kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return False
    return True


class UnorderedRows(io.RawIOBase):
    """A file as Arrow needs it: random access."""

    def __init__(self, raw: RawFile) -> None:
        self._raw, self._position = raw, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        origin = {io.SEEK_SET: 0, io.SEEK_CUR: self._position}.get(whence, self._raw.entry.size)
        self._position = origin + offset
        return self._position

    def read(self, size: int | None = -1) -> bytes:
        left = max(0, self._raw.entry.size - self._position)
        content = self._raw.read_range(
            self._position, left if size is None or size < 0 else min(size, left)
        )
        self._position += len(content)
        return content
