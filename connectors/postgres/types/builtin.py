"""Readers of PostgreSQL's own types and of well-known extensions."""

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.connectors.postgres.types import datetime, numeric
from headwater.connectors.postgres.types.column_reader import (
    OUTPUT,
    UNAVAILABLE,
    TypeReader,
    as_type,
    text_reading,
)
from headwater.connectors.postgres.types.copy_formats import ASKED, form_of
from headwater.connectors.postgres.types.geometry import (
    geometry_reading,
    point_reading,
    vector_reading,
)
from headwater.core_log.rows.arrow_buffers import bytes_and_offsets, column_of, is_valid
from headwater.core_log.rows.text.bytes import from_hex

BITS = "io.debezium.data.Bits"
UNLIMITED = 2**31 - 1
HEX_PREFIX = r"\x"


def bytes_reading() -> TypeReader:
    return TypeReader(pa.binary(), _bytes, unavailable=UNAVAILABLE.encode())


def _bytes(text: pa.StringArray) -> pa.Array:
    return from_hex(text, prefix=HEX_PREFIX)


def bits_reading(modifier: int) -> TypeReader:
    """Returns the reader. A single bit is a boolean; more are bytes, and the last bit is the lowest
    of the first byte."""
    if modifier == 1:
        return TypeReader(pa.bool_(), lambda text: pc.equal(text, "1"))
    length = UNLIMITED if modifier < 0 else modifier
    return TypeReader(pa.binary(), _bits, BITS, {"length": str(length)})


def _bits(text: pa.StringArray) -> pa.Array:
    width = pc.max(pc.binary_length(text)).as_py() or 0
    byte_count = (width + 7) // 8
    padded = pc.utf8_lpad(text, byte_count * 8, "0")
    if padded.null_count:
        padded = padded.fill_null("0" * byte_count * 8)
    bits = bytes_and_offsets(padded)[0].reshape(len(text), byte_count * 8) == ord("1")
    numbers = np.packbits(bits[:, ::-1], axis=1, bitorder="little")
    # Debezium leaves out zeros at the upper end.
    is_kept = np.logical_or.accumulate((numbers != 0)[:, ::-1], axis=1)[:, ::-1]
    if text.null_count:
        is_kept &= is_valid(text)[:, None]
    offsets = np.concatenate(([0], np.cumsum(is_kept.sum(axis=1))))
    return column_of(pa.binary(), numbers[is_kept], offsets, like=text)


OfModifier = Callable[[int], TypeReader]

JSON = "io.debezium.data.Json"
TEXTS: Mapping[str, str] = {
    "text": "",
    "varchar": "",
    "bpchar": "",
    "char": "",
    "name": "",
    "inet": "",
    "cidr": "",
    "macaddr": "",
    "macaddr8": "",
    "int4range": "",
    "int8range": "",
    "numrange": "",
    "daterange": "",
    "tsrange": "",
    "tstzrange": "",
    "uuid": "io.debezium.data.Uuid",
    "json": JSON,
    "jsonb": JSON,
    "xml": "io.debezium.data.Xml",
    "tsvector": "io.debezium.data.Tsvector",
}
"""Types that stay text, with Debezium's name of their meaning."""
CASTS: Mapping[str, pa.DataType] = {
    "int2": pa.int16(),
    "int4": pa.int32(),
    "int8": pa.int64(),
    "oid": pa.int64(),
    "float4": pa.float32(),
    "float8": pa.float64(),
}
MADE: Mapping[str, OfModifier] = {
    "bool": lambda _: numeric.boolean_reading(),
    "numeric": numeric.numeric_reading,
    "date": lambda _: datetime.date_reading(),
    "time": datetime.time_reading,
    "timetz": lambda _: datetime.zoned_time_reading(),
    "timestamp": datetime.timestamp_reading,
    "timestamptz": datetime.zoned_timestamp_reading,
    "bytea": lambda _: bytes_reading(),
    "bit": bits_reading,
    "varbit": bits_reading,
    "point": lambda _: point_reading(),
}
EXTENSIONS: Mapping[str, OfModifier] = {
    "citext": lambda _: text_reading(),
    "ltree": lambda _: text_reading("io.debezium.data.Ltree"),
    "geometry": lambda _: geometry_reading("geometry"),
    "geography": lambda _: geometry_reading("geography"),
    "vector": lambda _: vector_reading(pa.float64(), "DoubleVector"),
    "halfvec": lambda _: vector_reading(pa.float32(), "FloatVector"),
}
"""By name only, as their oids differ between databases."""
LEFT_OUT_IN_ARRAYS = {"money", "interval", "point", "bit", "varbit", "xml", "name"}
"""Types that Debezium supports alone but not in arrays, like arrays of domains."""


def builtin_reading(name: str, modifier: int) -> TypeReader | None:
    """Returns the reader; None for an unknown type, which is read as text."""
    reading = _of_text(name, modifier)
    if reading is None:
        return None
    if (form := form_of(name, reading.type)) is not None:
        return replace(reading, asked=as_type(name), form=form)
    return replace(reading, asked=ASKED.get(name, OUTPUT))


def _of_text(name: str, modifier: int) -> TypeReader | None:
    if name in TEXTS:
        return text_reading(TEXTS[name])
    if name in CASTS:
        return numeric.cast_reading(CASTS[name])
    return MADE[name](modifier) if name in MADE else None


def extension_reading(name: str, modifier: int) -> TypeReader | None:
    return EXTENSIONS[name](modifier) if name in EXTENSIONS else None
