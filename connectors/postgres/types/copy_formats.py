"""COPY's binary formats of PostgreSQL's own types."""

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headwater.connectors.postgres.types.column_reader import CopyFormat, as_type
from headwater.connectors.postgres.types.datetime import (
    EPOCH_DAYS,
    EPOCH_US,
    date_texts,
    moment_texts,
)
from headwater.core_log.foundation.errors import DecodeError
from headwater.core_log.rows.arrow_buffers import (
    bytes_and_offsets,
    fixed_width_column,
    is_valid,
    numbers_column,
)
from headwater.core_log.rows.schema_text import numpy_type
from headwater.core_log.rows.text.bytes import HEX_DIGITS, to_hex
from headwater.core_log.rows.text.datetime import INFINITE_DAYS, INFINITE_MS

INT64 = np.iinfo(np.int64)

HEX_PAIRS = np.frombuffer(
    bytes(digit for byte in range(256) for digit in (HEX_DIGITS[byte >> 4], HEX_DIGITS[byte & 15])),
    np.uint16,
)
"""The two hexadecimal digits of every byte."""
UUID_BYTES, UUID_LETTERS = 16, 36
UUID_GROUPS = {"a": 8, "b": 4, "c": 4, "d": 4, "e": 12}
"""Number of digits of each group, with a field name."""


def _group(offsets: Sequence[int], size: int) -> np.dtype[np.void]:
    """The groups of a uuid, which can be moved as a whole."""
    formats = [f"V{count}" for count in UUID_GROUPS.values()]
    return np.dtype(
        {"names": [*UUID_GROUPS], "formats": formats, "offsets": offsets, "itemsize": size}
    )


DIGITS = _group((0, 8, 12, 16, 20), 2 * UUID_BYTES)
DASHED = _group((0, 9, 14, 19, 24), UUID_LETTERS)


def form_of(name: str, kind: pa.DataType) -> CopyFormat | None:
    """Returns the format of a server's own type that becomes `kind`; None if its text is better."""
    if name in NUMBERS:
        return _number_form(NUMBERS[name], kind)
    if name in ("timestamp", "timestamptz"):
        zone = "+00" if name == "timestamptz" else ""
        return CopyFormat(lambda sent: _moments(sent, kind), lambda sent: _moment_texts(sent, zone))
    return OTHERS.get(name)


def _number_form(sent_as: str, kind: pa.DataType) -> CopyFormat:
    here = numpy_type(kind)

    def read(sent: pa.BinaryArray) -> pa.Array:
        return numbers_column(kind, _numbers(sent, sent_as).astype(here), like=sent)

    return CopyFormat(read, lambda sent: read(sent).cast(pa.string()))


def _numbers(sent: pa.BinaryArray, sent_as: str) -> npt.NDArray[np.generic]:
    """Returns the numbers; zero for a null."""
    return _rows(sent, np.dtype(sent_as).itemsize).view(sent_as).reshape(-1)


def _rows(sent: pa.BinaryArray, width: int) -> npt.NDArray[np.uint8]:
    """Returns the bytes of each value; zeros for a null."""
    data, offsets = bytes_and_offsets(sent)
    if (np.diff(offsets) == width).all():
        return data.reshape(-1, width)
    valid = is_valid(sent)
    if (np.diff(offsets)[valid] != width).any():
        raise DecodeError("the server sent a value of another size than its type has")
    whole = np.zeros((len(sent), width), np.uint8)
    whole[valid] = data.reshape(-1, width)
    return whole


def _booleans(sent: pa.BinaryArray) -> pa.Array:
    bits = np.packbits(_rows(sent, 1).reshape(-1), bitorder="little")
    return numbers_column(pa.bool_(), bits, like=sent)


def _dates(sent: pa.BinaryArray) -> pa.Array:
    days = _numbers(sent, ">i4").astype(np.int32)
    is_finite = ~np.isin(days, [*INFINITE_DAYS.values()])  # the server's too
    return numbers_column(pa.date32(), np.where(is_finite, days + EPOCH_DAYS, days), like=sent)


def _moments(sent: pa.BinaryArray, kind: pa.TimestampType) -> pa.Array:
    since_2000 = _numbers(sent, ">i8").astype(np.int64)
    per_ms = 1 if kind.unit == "ms" else 1_000
    is_late, is_early = since_2000 == INT64.max, since_2000 == INT64.min
    found, epoch = np.where(is_late, 0, since_2000) // (1_000 // per_ms), EPOCH_US * per_ms // 1_000
    if (found > INT64.max - epoch).any():
        raise OverflowError("a moment is later than any that we can hold")
    found += epoch
    for is_infinite, word in ((is_late, "infinity"), (is_early, "-infinity")):
        if is_infinite.any():
            found[is_infinite] = INFINITE_MS[word] * per_ms
    return numbers_column(kind, found, like=sent)


def _uuids(sent: pa.BinaryArray) -> pa.StringArray:
    digits = HEX_PAIRS[_rows(sent, UUID_BYTES)].view(DIGITS)
    letters = np.full((len(sent), UUID_LETTERS), ord("-"), np.uint8)
    dashed = letters.view(DASHED)
    for group in UUID_GROUPS:
        dashed[group] = digits[group]
    return fixed_width_column(pa.string(), letters, like=sent)


def _moment_texts(sent: pa.BinaryArray, zone: str) -> pa.StringArray:
    texts = moment_texts(_numbers(sent, ">i8").tolist(), zone)
    return pc.if_else(sent.is_valid(), texts, None)


def _date_texts(sent: pa.BinaryArray) -> pa.StringArray:
    return pc.if_else(sent.is_valid(), date_texts(_numbers(sent, ">i4").tolist()), None)


NUMBERS: Mapping[str, str] = {
    "int2": ">i2", "int4": ">i4", "int8": ">i8", "oid": ">u4", "float4": ">f4", "float8": ">f8",
}  # fmt: skip
OTHERS: Mapping[str, CopyFormat] = {
    "bool": CopyFormat(_booleans, lambda sent: pc.if_else(_booleans(sent), "t", "f")),
    "date": CopyFormat(_dates, _date_texts),
    "uuid": CopyFormat(_uuids, _uuids),
    "bytea": CopyFormat(
        lambda sent: sent,
        lambda sent: pc.binary_join_element_wise("\\x", to_hex(sent), ""),
    ),
}
ASKED: Mapping[str, str] = {
    **{name: as_type(name) for name in ("text", "varchar", "bpchar", "name", "json")},
    **dict.fromkeys(("numeric", "jsonb"), as_type("text")),
}
"""Types whose bytes are their text, and two that only their output function converts to text."""
