"""Parses lines of CSV into columns."""

import re
from collections.abc import Mapping, Sequence
from decimal import Decimal
from functools import lru_cache

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from headwater.connectors.files.contents import BOM, BrokenFile
from headwater.connectors.files.line_parser import NotARow
from headwater.connectors.files.schema_inference import InferredSchema, settled_type
from headwater.connectors.files.settings import CsvSettings
from headwater.connectors.files.whole_numbers import digits_lost, has_large, loses
from headwater.core_log.rows.rejects import misfit

WIDTH = re.compile(r"Expected (\d+) columns, got (\d+)")
COLUMN = re.compile(r"In CSV column #(\d+)")
NOT_UTF8 = "UTF8"
PADDED = r"^[+-]?0[0-9]"
"""A number that would lose its leading zeros, such as a postal code."""
LONG = r"^[+-]?[0-9]{16,}$"
"""A whole number that is too long for an integer and would lose its last digits."""
WHOLE = r"^\s*[+-]?[0-9]{8,}\s*$"
"""A number that a column of floats may not keep exactly."""
ENCODING_HINT = "csv.encoding says what it is"
HEADERS_MAX = 64
"""Number of header lines in the cache."""


class CsvLines:
    """The parser of one file; its first line names its columns unless there is no header."""

    def __init__(
        self,
        settings: CsvSettings,
        *,
        delimiter: str,
        header: bytes | None,
        key: tuple[str, ...],
    ) -> None:
        self._parse, self._encoding = parse_options(settings, delimiter), settings.encoding
        self._nulls = list(settings.nulls)
        self._single_line_quote = b"" if settings.multiline else settings.quote.encode()
        self._names = None if header is None else names_in(header, settings, delimiter)
        if self._names and (missing := [name for name in key if name not in self._names]):
            raise BrokenFile(f"columns of the key are missing: {', '.join(missing)}")

    def parse(self, block: bytes | memoryview, inferred: InferredSchema) -> pa.Table:
        """Returns the rows; raises `NotARow` unless every line fits. New columns are added to
        `shape`."""
        block = as_utf8(bytes(block), self._encoding)
        names = self._names or list(inferred.types)
        fresh = [] if inferred.is_closed else [name for name in names if name not in inferred.types]
        if fresh:
            inferred.add(self._infer(block, names, fresh))
        rows = self._read(block, names, inferred.types, list(inferred.types))
        large = [
            name for name, kind in inferred.types.items() if has_large(rows.column(name), kind)
        ]
        if large:
            texts = self._read(block, names, dict.fromkeys(large, pa.string()), large)
            check_whole_numbers(texts, inferred.types)
        if self._single_line_quote and self._single_line_quote in block:
            # If every line ends in the same way, their number is enough for all but the last one.
            check_line_ends(rows if b"\r" in block else rows.slice(max(0, rows.num_rows - 1)))
        return rows

    def _infer(
        self, block: bytes, names: Sequence[str], fresh: Sequence[str]
    ) -> dict[str, pa.DataType]:
        sample = self._read(block, names, {}, fresh)
        types = {field.name: settled_type(field.type) for field in sample.schema}
        # The parser reads text that is not UTF-8 as bytes, which is an error here.
        types |= {
            name: pa.string()
            for name, kind in types.items()
            if pa.types.is_time(kind) or pa.types.is_binary(kind)
        }
        numbers = [
            name
            for name, kind in types.items()
            if pa.types.is_integer(kind) or pa.types.is_floating(kind)
        ]
        texts = self._read(block, names, dict.fromkeys(numbers, pa.string()), numbers)
        changed = [name for name in numbers if loses_digits(texts.column(name), types[name])]
        return types | dict.fromkeys(changed, pa.string())

    def _read(
        self,
        block: bytes,
        names: Sequence[str],
        types: Mapping[str, pa.DataType],
        wanted: Sequence[str],
    ) -> pa.Table:
        if not wanted:
            return pa.table({})
        try:
            return csv.read_csv(
                pa.BufferReader(pa.py_buffer(block)),
                read_options=csv.ReadOptions(
                    use_threads=False, block_size=len(block) + 1, column_names=names
                ),
                parse_options=self._parse,
                convert_options=csv.ConvertOptions(
                    column_types=types,
                    include_columns=wanted,
                    include_missing_columns=True,
                    null_values=self._nulls,
                    true_values=["true", "True", "TRUE"],
                    false_values=["false", "False", "FALSE"],
                    strings_can_be_null=True,
                    quoted_strings_can_be_null=False,
                ),
            )
        except pa.ArrowInvalid as error:
            reason, kinds = str(error), dict(types)
            raise NotARow(
                problem_of(reason, names), lambda: self._misfit(reason, block, names, kinds)
            ) from error

    def _misfit(
        self, reason: str, block: bytes, names: Sequence[str], types: Mapping[str, pa.DataType]
    ) -> str:
        """Returns the misfit in a block of one line; empty if no value is the cause."""
        found = COLUMN.search(reason)
        name = names[int(found[1])] if found else ""
        if name not in types or NOT_UTF8 in reason:
            return ""
        values = self._read(block, names, {name: pa.string()}, [name]).column(name)
        return misfit(f"column {name}", types[name], values[0].as_py()) if len(values) else ""


def parse_options(settings: CsvSettings, delimiter: str) -> csv.ParseOptions:
    return csv.ParseOptions(
        delimiter=settings.delimiter or delimiter,
        quote_char=settings.quote or False,
        double_quote=bool(settings.quote),
        escape_char=settings.escape or False,
        newlines_in_values=settings.multiline,
        ignore_empty_lines=True,
    )


@lru_cache(HEADERS_MAX)
def names_in(header: bytes, settings: CsvSettings, delimiter: str) -> tuple[str, ...]:
    """Returns the names from a cache, because a growing file is opened again and again."""
    try:
        text = as_utf8(header.removeprefix(BOM), settings.encoding)
        text.decode()
    except (NotARow, UnicodeDecodeError):
        raise BrokenFile(f"the first line is not {settings.encoding}: {ENCODING_HINT}") from None
    try:
        head = csv.read_csv(
            pa.BufferReader(text),
            read_options=csv.ReadOptions(use_threads=False),
            parse_options=parse_options(settings, delimiter),
        )
    except pa.ArrowInvalid as error:
        raise BrokenFile("the first line is not a header") from error
    names = tuple(head.schema.names)
    if len(set(names)) < len(names) or not all(names):
        raise BrokenFile("the header has an empty name, or one twice")
    return names


def as_utf8(text: bytes, encoding: str) -> bytes:
    if encoding == "utf-8":
        return text
    try:
        return text.decode(encoding).encode()
    except UnicodeDecodeError:
        raise NotARow(f"the line is not {encoding}: {ENCODING_HINT}") from None


def problem_of(reason: str, names: Sequence[str]) -> str:
    """Returns the error without the values that the parser quotes."""
    if found := WIDTH.search(reason):
        return f"the line has {found[2]} values, not {found[1]}"
    column = f"column {names[int(found[1])]}" if (found := COLUMN.search(reason)) else ""
    if NOT_UTF8 in reason:
        return f"{column or 'the line'} is not utf-8: {ENCODING_HINT}"
    return f"{column} does not fit its type" if column else "the line is not CSV"


def check_line_ends(rows: pa.Table) -> None:
    """Raises if a quote is not closed: it would make the following lines a part of its value."""
    for column in rows.columns:
        if pa.types.is_string(column.type) and pc.any(pc.match_substring(column, "\n")).as_py():
            raise NotARow("a quote is not closed")


def check_whole_numbers(texts: pa.Table, types: Mapping[str, pa.DataType]) -> None:
    for name in texts.column_names:
        column = texts.column(name)
        whole = column.filter(pc.match_substring_regex(column, WHOLE))
        if any(loses(types[name], Decimal(text)) for text in whole.to_pylist()):
            raise NotARow(f"column {name} {digits_lost(types[name])}")


def loses_digits(column: pa.ChunkedArray, kind: pa.DataType) -> bool:
    """Returns whether a text of the column would change as a number of this type."""
    pattern = f"{PADDED}|{LONG}" if pa.types.is_floating(kind) else PADDED
    return bool(pc.any(pc.match_substring_regex(column, pattern)).as_py())
