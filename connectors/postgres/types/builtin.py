"""Readers of PostgreSQL's own types and of well-known extensions."""

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.connectors.postgres.types import datetime, numeric
from headwater.connectors.postgres.types.arrays import array_reading
from headwater.connectors.postgres.types.column_reader import (
    OUTPUT,
    UNAVAILABLE,
    ReadColumn,
    TypeReader,
    as_type,
    text_reading,
)
from headwater.connectors.postgres.types.copy_formats import ASKED, form_of
from headwater.core_log.foundation.array_types import UInt8Array
from headwater.core_log.rows.arrow_buffers import (
    bytes_and_offsets,
    column_of,
    fixed_width_column,
    is_valid,
)
from headwater.core_log.rows.converters.column import AS_MAP, FORM, JSON, object_text
from headwater.core_log.rows.text.bytes import from_hex

BITS = "io.debezium.data.Bits"
UNLIMITED = 2**31 - 1
HEX_PREFIX = r"\x"
PAIR = re.compile(r'"((?:[^"\\]|\\.)*)"=>(?:NULL|"((?:[^"\\]|\\.)*)")(?:, |$)', re.DOTALL)
ESCAPE = re.compile(r"\\(.)", re.DOTALL)
POINT = pa.struct(
    [("x", pa.float64()), ("y", pa.float64()), ("wkb", pa.binary()), ("srid", pa.int32())]
)
WKB_POINT = b"\x01\x01\x00\x00\x00"
"""Little-endian, a point."""
GEOMETRY = pa.struct([("wkb", pa.binary()), ("srid", pa.int32())])
HEAD_BYTES = 9
HAS_SRID = 0x20000000


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


def hstore_reading(form: str) -> TypeReader:
    """Returns the reader; `form` is the setting `hstore` of the source."""
    word = object_text({UNAVAILABLE: UNAVAILABLE})
    parameters = {FORM: AS_MAP} if form == AS_MAP else {}
    return TypeReader(pa.string(), _objects, JSON, parameters, word)


def _objects(text: pa.StringArray) -> pa.Array:
    return pa.array(
        [None if value is None else _object(value) for value in text.to_pylist()], pa.string()
    )


def _object(text: str) -> str:
    pairs: dict[str, str | None] = {}
    place = 0
    while place < len(text):
        match = PAIR.match(text, place)
        if match is None:
            raise ValueError("the text is not an hstore")
        key, value = match.groups()
        pairs[_plain(key)] = None if value is None else _plain(value)
        place = match.end()
    return object_text(pairs)


def _plain(escaped: str) -> str:
    return ESCAPE.sub(r"\1", escaped)


def point_reading() -> TypeReader:
    return TypeReader(POINT, _points, "io.debezium.data.geometry.Point")


def _points(text: pa.StringArray) -> pa.Array:
    pairs = pc.split_pattern(pc.utf8_trim(text, "()"), ",")
    x, y = (pc.list_element(pairs, place).cast(pa.float64()) for place in (0, 1))
    numbers = np.stack((x.fill_null(0).to_numpy(), y.fill_null(0).to_numpy()), axis=1)
    wkb = np.empty((len(text), len(WKB_POINT) + 16), np.uint8)
    wkb[:, : len(WKB_POINT)] = np.frombuffer(WKB_POINT, np.uint8)
    wkb[:, len(WKB_POINT) :] = numbers.astype("<f8").view(np.uint8).reshape(-1, 16)
    members = [
        x, y, fixed_width_column(pa.binary(), wkb, like=text), pa.nulls(len(text), pa.int32()),
    ]  # fmt: skip
    return pa.StructArray.from_arrays(members, fields=list(POINT), mask=text.is_null())


def geometry_reading(name: str) -> TypeReader:
    """Returns the reader; `name` is `geometry` or `geography`."""
    return TypeReader(GEOMETRY, _geometries, f"io.debezium.data.geometry.{name.capitalize()}")


def _geometries(text: pa.StringArray) -> pa.Array:
    """Parses PostGIS's extended well-known binary, which may have a reference system."""
    wkb = from_hex(text)
    data, offsets = bytes_and_offsets(wkb)
    long_enough = np.diff(offsets) >= HEAD_BYTES
    if (is_valid(text) & ~long_enough).any():
        raise ValueError("the text is not a geometry of PostGIS")
    starts = np.where(long_enough, offsets[:-1], 0)
    if not len(data):
        return pa.nulls(len(text), GEOMETRY)
    heads = data[starts[:, None] + np.arange(HEAD_BYTES)]
    is_little = heads[:, 0] == 1
    kinds, srids = (
        np.where(is_little, _words(heads[:, a:b], "<u4"), _words(heads[:, a:b], ">u4"))
        for a, b in ((1, 5), (5, 9))
    )
    lacks = ((kinds & HAS_SRID) == 0) | ~is_valid(text)
    members = [wkb, pa.array(srids.astype(np.int32), mask=lacks)]
    return pa.StructArray.from_arrays(members, fields=list(GEOMETRY), mask=text.is_null())


def _words(octets: UInt8Array, kind: str) -> Any:
    return np.ascontiguousarray(octets).view(kind).reshape(-1)


def vector_reading(item: pa.DataType, name: str) -> TypeReader:
    """Returns the reader of `[1,2,3]`, which is an array with other brackets."""
    numbers = array_reading(
        TypeReader(item, lambda text: text.cast(item)), delimiter=",", dimensions=1
    )
    return TypeReader(numbers.type, _in_braces(numbers.read), f"io.debezium.data.{name}")


def _in_braces(read: ReadColumn) -> ReadColumn:
    def read_vectors(text: pa.StringArray) -> pa.Array:
        inner = pc.utf8_trim(text, "[]")
        return read(pc.binary_join_element_wise("{", inner, "}", ""))

    return read_vectors
