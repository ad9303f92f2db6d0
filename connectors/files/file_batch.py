"""The result of reading a part of one file: rows as changes, rejected lines, and the new state."""

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from headwater.connectors.files.file_progress import FileState
from headwater.connectors.files.line_parser import ParsedLines, line_ends
from headwater.connectors.files.schema_inference import InferredSchema
from headwater.connectors.files.storage import FileEntry
from headwater.core_log.model.changes import Operation, Reject, TableChanges, source_times
from headwater.core_log.model.table_schema import TableId


class FileBatch(NamedTuple):
    """A batch with the file's state after it; `bytes` is its weight among other files."""

    changes: TableChanges | None
    rejects: list[Reject]
    state: FileState
    bytes: int


class FileOrigin(NamedTuple):
    """The common parts of all events of a source."""

    pipeline: str
    version: str

    def changes(
        self, sifted: ParsedLines, shape: InferredSchema, entry: FileEntry, *, before: FileState
    ) -> TableChanges | None:
        """Returns rows as changes: created rows, or, from a rewritten file, rows read again that
        replace those of the same key."""
        if not sifted.rows.num_rows:
            return None
        is_repeat = before.is_repeat and bool(shape.key)
        operation = Operation.READ if is_repeat else Operation.INSERT
        places = pa.array(sifted.numbers + before.rows, pa.int64())
        times = source_times(entry.modified_us)
        return TableChanges(
            schema=shape.schema,
            rows=sifted.rows,
            operations=pa.array(np.full(sifted.rows.num_rows, operation, np.uint8)),
            source={
                "version": self.version,
                "connector": "files",
                "name": self.pipeline,
                "ts_ms": times["ts_ms"],
                "snapshot": "false",
                "db": None,
                "sequence": None,
                "ts_us": times["ts_us"],
                "ts_ns": times["ts_ns"],
                "table": shape.table.name,
                "file": entry.name,
                "row": places,
            },
            commits=entry.name,
            indexes=places,
        )


def rejects_of_rows(
    sifted: ParsedLines, shape: InferredSchema, entry: FileEntry, *, before: FileState
) -> list[Reject]:
    """Returns rejects of a file without lines, by row number."""
    return [
        Reject(shape.table, bad.content, bad.problem, f"{entry.name}#{before.rows + bad.row}")
        for bad in sifted.bad
    ]


def rejects_of_lines(
    sifted: ParsedLines,
    shape: InferredSchema,
    entry: FileEntry,
    *,
    before: FileState,
    block: bytes,
    quote: str,
) -> list[Reject]:
    """Returns rejects of lines; `quote` may enclose line ends."""
    if not sifted.bad:
        return []
    starts = np.concatenate([[0], line_ends(block, quote)])
    ends = line_ends(block, "")
    return [
        reject_of_line(
            shape.table,
            entry,
            before.lines + int(np.searchsorted(ends, starts[bad.row], side="right")),
            problem=bad.problem,
            content=bad.content,
        )
        for bad in sifted.bad
    ]


def reject_of_line(
    table: TableId, entry: FileEntry, lines_before: int, *, problem: str, content: bytes
) -> Reject:
    """Returns a reject with its place in the form of editors and compilers: `orders.csv:19`,
    counted from 1."""
    return Reject(table, content, problem, f"{entry.name}:{lines_before + 1}")
