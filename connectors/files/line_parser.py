"""Parses a block of lines: at once if all of them are good, else without the bad ones."""

from collections.abc import Callable
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headwater.connectors.files.file_progress import FileState
from headwater.connectors.files.schema_inference import InferredSchema
from headwater.connectors.files.storage import FileEntry
from headwater.core_log.foundation.array_types import Int64Array
from headwater.core_log.model.changes import Operation, Reject, TableChanges, source_times
from headwater.core_log.model.table_schema import TableId
from headwater.core_log.rows.rejects import failing_rows

LINE_END, CARRIAGE_RETURN = ord("\n"), ord("\r")


class NotARow(Exception):
    """A line is not a row of its table; the message has no part of its content.

    `explain` gives more details about a single line.
    """

    def __init__(self, problem: str, explain: Callable[[], str] = str) -> None:
        super().__init__(problem)
        self.explain = explain


BAD = (NotARow, pa.ArrowInvalid, UnicodeDecodeError)
"""Exceptions of parsers."""


class LineParser(Protocol):
    """The parser of one format. New columns are added to `shape`."""

    def parse(self, block: bytes | memoryview, inferred: InferredSchema) -> pa.Table:
        """Returns a row per line; raises one of `BAD` if a line is not a row."""
        ...


class BadLine(NamedTuple):
    row: int
    content: bytes
    problem: str


class ParsedLines(NamedTuple):
    """Rows with the number of each line in the block, and the rejected lines."""

    rows: pa.RecordBatch
    numbers: Int64Array
    bad: list[BadLine]


class LineBounds(NamedTuple):
    """Start, end and number of each line in a block, without blank lines."""

    starts: Int64Array
    ends: Int64Array
    numbers: Int64Array

    def part(self, block: memoryview, low: int, high: int) -> memoryview:
        return block[self.starts[low] : self.ends[high - 1]]


def sift(
    block: bytes,
    inferred: InferredSchema,
    lines: LineParser,
    *,
    line_count: int,
    layout: Callable[[], LineBounds],
) -> ParsedLines:
    """Parses a block; `layout` is only called if the block has bad lines."""
    try:
        rows = lines.parse(block, inferred)
    except BAD:
        rows = None
    if rows is not None and rows.num_rows == line_count:
        sifted = ParsedLines(as_batch(rows, inferred), np.arange(line_count), [])
    elif rows is not None and rows.num_rows == len((where := layout()).starts):
        sifted = ParsedLines(as_batch(rows, inferred), where.numbers, [])
    else:
        sifted = halve(block, inferred, lines, layout())
    return without_keyless(sifted, block, inferred, layout)


def halve(
    block: bytes, inferred: InferredSchema, lines: LineParser, layout: LineBounds
) -> ParsedLines:
    """Halves bad blocks down to single bad lines; from the left, so that the first good lines
    decide inferred types."""
    view = memoryview(block)
    good: list[tuple[pa.Table, Int64Array]] = []

    def parse(low: int, high: int) -> None:
        rows = lines.parse(layout.part(view, low, high), inferred)
        if rows.num_rows != high - low:
            raise NotARow("the line is not exactly one row")
        good.append((rows, layout.numbers[low:high]))

    failed = failing_rows(len(layout.starts), parse, BAD)
    bad = [
        BadLine(
            int(layout.numbers[row]),
            bytes(layout.part(view, row, row + 1)).rstrip(b"\r\n"),
            problem_of(error),
        )
        for row, error in failed.items()
    ]
    batches = [as_batch(rows, inferred) for rows, _ in good]
    numbers = [each for _, each in good]
    return ParsedLines(
        pa.Table.from_batches(batches, inferred_schema(inferred)).combine_chunks().to_batches()[0]
        if batches
        else pa.RecordBatch.from_pylist([], inferred_schema(inferred)),
        np.concatenate(numbers) if numbers else np.empty(0, np.int64),
        bad,
    )


def without_keyless(
    sifted: ParsedLines, block: bytes, inferred: InferredSchema, layout: Callable[[], LineBounds]
) -> ParsedLines:
    """Rejects rows in which a column of the key is null or missing."""
    columns = [
        sifted.rows.column(name)
        if name in inferred.types
        else pa.nulls(len(sifted.numbers), pa.string())
        for name in inferred.key
    ]
    if not any(column.null_count for column in columns):
        return sifted
    lacking = np.zeros(len(sifted.numbers), bool)
    for column in columns:
        lacking |= pc.is_null(column).to_numpy(zero_copy_only=False)
    all_lines, view = layout(), memoryview(block)
    indices = np.searchsorted(all_lines.numbers, sifted.numbers[lacking])
    bad = [
        BadLine(
            int(all_lines.numbers[index]),
            bytes(all_lines.part(view, index, index + 1)).rstrip(b"\r\n"),
            "a column of the key is null",
        )
        for index in indices
    ]
    keep = ~lacking
    return ParsedLines(
        sifted.rows.filter(pa.array(keep)),
        sifted.numbers[keep],
        sorted([*sifted.bad, *bad]),
    )


def inferred_schema(inferred: InferredSchema) -> pa.Schema:
    return pa.schema([pa.field(name, kind) for name, kind in inferred.types.items()])


def as_batch(rows: pa.Table, inferred: InferredSchema) -> pa.RecordBatch:
    """Returns one batch of exactly the present columns of the table."""
    columns = [
        rows.column(name).combine_chunks()
        if name in rows.column_names
        else pa.nulls(rows.num_rows, kind)
        for name, kind in inferred.types.items()
    ]
    flat = [each.chunk(0) if isinstance(each, pa.ChunkedArray) else each for each in columns]
    return pa.RecordBatch.from_arrays(flat, schema=inferred_schema(inferred))


def problem_of(error: Exception) -> str:
    """Returns the parser's message, unless it quotes values."""
    if isinstance(error, NotARow):
        return error.explain() or str(error)
    text = str(error).replace("-", "").lower()
    return "the line is not UTF-8" if "utf8" in text else "the line breaks its format"


def line_count_of(block: bytes, quote: str) -> int:
    """Returns the number of lines, including blank ones and a last one without a line end."""
    if quote:
        ends = line_ends(block, quote)
        return len(ends) + (not len(ends) or int(ends[-1]) < len(block))
    return block.count(b"\n") + (not block.endswith(b"\n"))


def layout_of(block: bytes, *, quote: str, has_blank_rows: bool) -> LineBounds:
    """Returns the bounds of lines. `quote` is the quote character, followed by the escape
    character; it is empty if values cannot contain line ends."""
    ends = line_ends(block, quote)
    if not len(ends) or ends[-1] < len(block):
        ends = np.append(ends, len(block))
    starts = np.concatenate([[0], ends[:-1]]).astype(np.int64)
    numbers = np.arange(len(ends))
    if has_blank_rows:
        return LineBounds(starts, ends, numbers)
    first = np.frombuffer(block, np.uint8)[starts]
    blank = first == LINE_END
    for index in np.flatnonzero(first == CARRIAGE_RETURN):
        blank[index] = not block[starts[index] : ends[index]].strip(b"\r\n")
    return LineBounds(starts[~blank], ends[~blank], numbers[~blank])


def line_ends(block: bytes, quote: str) -> Int64Array:
    """Returns the positions after every line end that is not enclosed."""
    codes = np.frombuffer(block, np.uint8)
    ends = np.flatnonzero(codes == LINE_END)
    if quote:
        quotes = np.flatnonzero(codes == ord(quote[0]))
        if len(quote) > 1:
            quotes = quotes[~are_escaped(codes, quotes, ord(quote[1]))]
        ends = ends[np.searchsorted(quotes, ends) % 2 == 0]
    return ends.astype(np.int64) + 1


def are_escaped(
    codes: npt.NDArray[np.uint8], indices: Int64Array, escape: int
) -> npt.NDArray[np.bool_]:
    """Whether an odd number of escapes is directly before each of the places."""
    others = np.where(codes == escape, -1, np.arange(len(codes)))
    last_other = np.concatenate([[-1], np.maximum.accumulate(others)])
    odd: npt.NDArray[np.bool_] = (indices - 1 - last_other[indices]) % 2 == 1
    return odd


def whole_lines(block: bytes, quote: str) -> int:
    if not quote:
        return block.rfind(b"\n") + 1
    ends = line_ends(block, quote)
    return int(ends[-1]) if len(ends) else 0


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
        self, sifted: ParsedLines, inferred: InferredSchema, entry: FileEntry, *, before: FileState
    ) -> TableChanges | None:
        """Returns rows as changes. With a key they may replace one of before, which goes if they do
        not pass a filter."""
        if not sifted.rows.num_rows:
            return None
        is_repeat = before.is_repeat and bool(inferred.key)
        operation = Operation.UPDATE if inferred.key else Operation.INSERT
        if is_repeat:
            operation = Operation.READ
        indices = pa.array(sifted.numbers + before.rows, pa.int64())
        times = source_times(entry.modified_us)
        return TableChanges(
            schema=inferred.schema,
            rows=sifted.rows,
            operations=pa.array(np.full(sifted.rows.num_rows, operation, np.uint8)),
            source={
                "version": self.version,
                "connector": "files",
                "name": self.pipeline,
                "ts_ms": times["ts_ms"],
                "snapshot": "incremental" if is_repeat else "false",
                "db": None,
                "sequence": None,
                "ts_us": times["ts_us"],
                "ts_ns": times["ts_ns"],
                "table": inferred.table.name,
                "file": entry.name,
                "row": indices,
            },
            commits=entry.name,
            indexes=indices,
        )


def rejects_of_rows(
    sifted: ParsedLines, inferred: InferredSchema, entry: FileEntry, *, before: FileState
) -> list[Reject]:
    """Returns rejects of a file without lines, by row number."""
    return [
        Reject(inferred.table, bad.content, bad.problem, f"{entry.name}#{before.rows + bad.row}")
        for bad in sifted.bad
    ]


def rejects_of_lines(
    sifted: ParsedLines,
    inferred: InferredSchema,
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
            inferred.table,
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
