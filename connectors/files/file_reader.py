"""Reads one open file in batches, from the last position to its end."""

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.connectors.files.contents import (
    BOM,
    BrokenFile,
    DecompressedContent,
    FileContent,
    TruncatedFile,
    content_of,
)
from headwater.connectors.files.csv_lines import CsvLines
from headwater.connectors.files.file_progress import FileChange, FileState, verdict
from headwater.connectors.files.json_lines import JsonLines
from headwater.connectors.files.line_parser import (
    BadLine,
    FileBatch,
    FileOrigin,
    LineParser,
    ParsedLines,
    layout_of,
    line_count_of,
    reject_of_line,
    rejects_of_lines,
    rejects_of_rows,
    sift,
    whole_lines,
)
from headwater.connectors.files.schema_inference import InferredSchema
from headwater.connectors.files.settings import FileFormat, FilesSettings, InputCompression
from headwater.connectors.files.storage import FileEntry, RawFile
from headwater.core_log.foundation.errors import SourceRejected
from headwater.core_log.model.changes import Reject


class FileBlock(NamedTuple):
    content: bytes
    is_open: bool = False
    """Whether it is a last line without a line end."""
    is_part_of_line: bool = False
    """Whether it is a part, but not the end, of a line that is too long."""
    is_too_long: bool = False
    """Whether it is the end of such a line."""


class BlockReader:
    """Reads on from `position`, but not beyond `end`; bytes after the last line end stay for the
    next block."""

    def __init__(
        self,
        content: FileContent,
        position: int,
        *,
        end: int | None,
        quote: str,
        block_bytes: int,
        line_bytes_max: int,
    ) -> None:
        self._content, self._position, self._end = content, position, end
        self._quote = quote
        self._block_bytes = block_bytes
        self._line_bytes_max = max(line_bytes_max, block_bytes)
        self._rest = b""
        self._is_within = False  # a line that is too long

    @property
    def has_rest(self) -> bool:
        """Whether bytes wait for their line end."""
        return bool(self._rest) or self._is_within

    def next(self, *, is_final: bool) -> FileBlock | None:
        """Returns a block; None if there are no more whole lines. A final line needs no line
        end."""
        wanted = self._block_bytes
        while True:
            is_end = self._fill(wanted)
            if self._is_within:
                return self._next_long(is_end=is_end, is_final=is_final)
            if cut := whole_lines(self._rest, self._quote):
                return FileBlock(self._cut(cut))
            if is_end:
                is_last = is_final and bool(self._rest)
                return FileBlock(self._cut(len(self._rest)), is_open=True) if is_last else None
            if wanted >= self._line_bytes_max:
                self._is_within = True
            else:
                wanted = min(2 * wanted, self._line_bytes_max)

    def _next_long(self, *, is_end: bool, is_final: bool) -> FileBlock | None:
        """Returns a part of a line that is too long: it ends at the next line end, enclosed or
        not."""
        if cut := self._rest.find(b"\n") + 1:
            self._is_within = False
            return FileBlock(self._cut(cut), is_too_long=True)
        if not is_end:
            return FileBlock(self._cut(len(self._rest)), is_part_of_line=True)
        if not is_final:
            return None
        self._is_within = False
        return FileBlock(self._cut(len(self._rest)), is_open=True, is_too_long=True)

    def _fill(self, wanted: int) -> bool:
        """Returns whether no more can be read at present."""
        missing = wanted - len(self._rest)
        if missing <= 0:
            return False
        size = missing if self._end is None else min(missing, self._end - self._position)
        fresh = self._content.read(self._position, size) if size > 0 else b""
        self._position += len(fresh)
        self._rest += fresh
        return len(fresh) < missing

    def _cut(self, size: int) -> bytes:
        taken, self._rest = self._rest[:size], self._rest[size:]
        return taken


NOTHING = b""


class OpenedFile:
    """Reads the content at the time of opening; later content is for the next scan."""

    def __init__(
        self,
        raw: RawFile,
        inferred: InferredSchema,
        settings: FilesSettings,
        origin: FileOrigin,
        *,
        format: FileFormat,
        compression: InputCompression,
        is_final: bool,
    ) -> None:
        self._raw, self._inferred, self._settings, self._origin = raw, inferred, settings, origin
        self._format, self._is_final = format, is_final
        self._is_plain = compression == "none"
        self._content = content_of(raw, compression)
        is_multiline = format == "csv" and settings.csv.multiline
        self._quote = settings.csv.enclosing if is_multiline else ""

    @property
    def entry(self) -> FileEntry:
        return self._raw.entry

    def batches(self, state: FileState) -> Iterator[FileBatch]:
        """Yields batches; the last one says whether the file is done. The rest of a file with a
        broken format is rejected once it can no longer be in the middle of a write."""
        try:
            if self._format == "parquet":
                for file_batch in self._row_groups(self._resumed_rows(state)):
                    state = file_batch.state
                    yield file_batch
            else:
                for file_batch in self._lines(self._resume(state)):
                    state = file_batch.state
                    yield file_batch
        except BrokenFile as broken:
            if self._is_final:
                # A file that is flushed now and then ends in the middle again and again.
                is_reported = isinstance(broken, TruncatedFile) and state.problem == str(broken)
                state = replace(state.open(self.entry), problem=str(broken), is_done=True)
                reject = self._reject_of_rest(str(broken), before=state)
                yield FileBatch(None, [] if is_reported else [reject], state, 0)

    def _reject_of_rest(self, problem: str, *, before: FileState) -> Reject:
        table, entry = self._inferred.table, self.entry
        if self._format == "parquet":
            return Reject(table, NOTHING, problem, f"{entry.name}#{before.rows}")
        return reject_of_line(table, entry, before.lines, problem=problem, content=NOTHING)

    def _resume(self, state: FileState) -> FileState:
        if not state.position:
            return state.open(self.entry)
        match verdict(state, self.entry, self._content, is_plain=self._is_plain):
            case FileChange.SAME:
                return state.open(self.entry)
            case FileChange.SHORTER:
                return state.open(self.entry).again(is_repeat=False)
            case FileChange.REWRITTEN:
                return self._handle_rewrite(state)

    def _resumed_rows(self, state: FileState) -> FileState:
        """Returns the row to resume at. A Parquet file is never appended to: another size or time
        is another content."""
        is_same = (state.size, state.modified_us) == (self.entry.size, self.entry.modified_us)
        if not state.rows or is_same:
            return replace(state.open(self.entry), problem="")
        return self._handle_rewrite(state)

    def _handle_rewrite(self, state: FileState) -> FileState:
        if not self._inferred.key and self._settings.on_rewrite == "stop":
            raise SourceRejected(
                "a file was rewritten after it was read",
                hint="give a key, so that its rows replace those of the same key; or set"
                " on_rewrite: append, to have all of them once more",
                file=self.entry.name,
                table=str(self._inferred.table),
            )
        return state.open(self.entry).again(is_repeat=True)

    def _lines(self, state: FileState) -> Iterator[FileBatch]:
        header = self._header() if self._format == "csv" and self._settings.csv.header else None
        if header is not None and not header.endswith(b"\n"):
            # It may still grow, so it is not read. The truncation must be stored.
            is_done = self._is_final or not self.entry.size
            self._check_end()
            yield FileBatch(None, [], replace(state, is_done=is_done), 0)
            return
        if header and not state.position:
            state = state.advance(header, 0)
        if state.is_open and (line_end := self._late_line_end(state.position)):
            state = state.advance(line_end, 0)
        lines = self._parser(header)
        blocks = BlockReader(
            self._content,
            state.position,
            end=self.entry.size if self._is_plain else None,
            quote=self._quote,
            block_bytes=self._settings.batch_bytes,
            line_bytes_max=self._settings.line_bytes_max,
        )
        ahead = state  # of the block, within a line that is too long
        for block in self._take(blocks):
            if block.is_part_of_line:
                ahead = ahead.advance(block.content, 0)
                continue
            file_batch = self._too_long(block, ahead) if block.is_too_long else None
            file_batch = file_batch or self._file_batch(block, state, lines)
            ahead = state = file_batch.state
            yield file_batch
        if not blocks.has_rest and self._cut is None:
            state = replace(state, is_done=True, is_repeat=False, problem="")
        yield FileBatch(None, [], state, 0)

    def _take(self, blocks: BlockReader) -> Iterator[FileBlock]:
        """Returns the next bytes; a last line without a line end only if nothing can follow it."""
        while (block := blocks.next(is_final=False)) is not None:
            yield block
        self._check_end()
        if self._is_final and (block := blocks.next(is_final=True)) is not None:
            yield block

    @property
    def _cut(self) -> TruncatedFile | None:
        return self._content.cut if isinstance(self._content, DecompressedContent) else None

    def _check_end(self) -> None:
        if self._is_final and self._cut is not None:
            raise self._cut

    def _late_line_end(self, position: int) -> bytes:
        """Handles the line end of a line that was read without one: it is not an empty line."""
        found = self._content.read(position, 2)
        return b"\n" if found[:1] == b"\n" else found if found == b"\r\n" else NOTHING

    def _file_batch(self, block: FileBlock, state: FileState, lines: LineParser) -> FileBatch:
        content = block.content.removeprefix(BOM) if not state.position else block.content
        line_count = line_count_of(content, self._quote)
        sifted = sift(
            content,
            self._inferred,
            lines,
            line_count=line_count,
            layout=lambda: layout_of(
                content, quote=self._quote, has_blank_rows=self._format == "text"
            ),
        )
        changes = self._origin.changes(sifted, self._inferred, self.entry, before=state)
        rejects = rejects_of_lines(
            sifted, self._inferred, self.entry, before=state, block=content, quote=self._quote
        )
        after = state.advance(block.content, line_count, is_open=block.is_open)
        return FileBatch(changes, rejects, after, len(block.content))

    def _too_long(self, block: FileBlock, state: FileState) -> FileBatch:
        problem = f"the line is longer than {self._settings.line_bytes_max} bytes"
        reject = reject_of_line(
            self._inferred.table, self.entry, state.lines, problem=problem, content=NOTHING
        )
        after = state.advance(block.content, 1, is_open=block.is_open)
        return FileBatch(None, [reject], after, len(block.content))

    def _header(self) -> bytes:
        """Returns the first line with its line end; empty while it is being written."""
        block = BlockReader(
            self._content,
            0,
            end=None,
            quote="",
            block_bytes=min(self._settings.batch_bytes, 1 << 16),
            line_bytes_max=self._settings.line_bytes_max,
        ).next(is_final=self._is_final)
        if block is None:
            return NOTHING
        if block.is_part_of_line or block.is_too_long:
            raise BrokenFile("the first line is not a header")
        return block.content[: block.content.find(b"\n") + 1] or block.content

    def _parser(self, header: bytes | None) -> LineParser:
        if self._format == "jsonl":
            return JsonLines()
        if self._format == "text":
            return TextLines()
        delimiter = "\t" if ".tsv" in self.entry.name.lower() else ","
        return CsvLines(
            self._settings.csv, delimiter=delimiter, header=header, key=self._inferred.key
        )

    def _row_groups(self, state: FileState) -> Iterator[FileBatch]:
        from headwater.connectors.files.parquet_rows import ParquetRows

        rows = ParquetRows(self._raw, self._inferred)
        for batch in rows.batches(from_row=state.rows, batch_bytes=self._settings.batch_bytes):
            sifted = with_keys(ParsedLines(batch, np.arange(batch.num_rows), []), self._inferred)
            changes = self._origin.changes(sifted, self._inferred, self.entry, before=state)
            rejects = rejects_of_rows(sifted, self._inferred, self.entry, before=state)
            state = replace(state, rows=state.rows + batch.num_rows)
            yield FileBatch(changes, rejects, state, batch.nbytes)
        assert state.rows == rows.row_count, "all rows of the file have been taken"
        yield FileBatch(None, [], replace(state, is_done=True, is_repeat=False), 0)


def with_keys(sifted: ParsedLines, inferred: InferredSchema) -> ParsedLines:
    """Removes rows in which a column of the key is null."""
    keep = np.ones(len(sifted.numbers), bool)
    for name in inferred.schema.key:
        keep &= pc.is_valid(sifted.rows.column(name)).to_numpy(zero_copy_only=False)
    if keep.all():
        return sifted
    bad = [
        BadLine(int(row), NOTHING, "a column of the key is null") for row in np.flatnonzero(~keep)
    ]
    return ParsedLines(sifted.rows.filter(pa.array(keep)), sifted.numbers[keep], bad)


COLUMN = "line"


class TextLines:
    """Reads every line as a row, also empty ones; it must be UTF-8."""

    def parse(self, block: bytes | memoryview, inferred: InferredSchema) -> pa.Table:
        inferred.add({COLUMN: pa.string()})
        content = pa.py_buffer(block)
        ends = np.flatnonzero(np.frombuffer(block, np.uint8) == ord("\n")) + 1
        if not len(ends) or ends[-1] < len(block):
            ends = np.append(ends, len(block))
        offsets = np.concatenate([[0], ends]).astype(np.int32)
        lines = pa.StringArray.from_buffers(len(ends), pa.py_buffer(offsets), content)
        lines.validate(full=True)
        cut = pc.replace_substring_regex(lines, pattern=r"\r?\n\z", replacement="")
        columns = {name: pa.nulls(len(ends), kind) for name, kind in inferred.types.items()}
        return pa.table(columns | {COLUMN: cut})
