"""Points, geometries of PostGIS, and vectors of pgvector."""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.connectors.postgres.types.arrays import array_reading
from headwater.connectors.postgres.types.column_reader import ReadColumn, TypeReader
from headwater.core_log.foundation.array_types import UInt8Array
from headwater.core_log.rows.arrow_buffers import bytes_and_offsets, fixed_width_column, is_valid
from headwater.core_log.rows.text.bytes import from_hex

POINT = pa.struct(
    [("x", pa.float64()), ("y", pa.float64()), ("wkb", pa.binary()), ("srid", pa.int32())]
)
WKB_POINT = b"\x01\x01\x00\x00\x00"
"""Little-endian, a point."""
GEOMETRY = pa.struct([("wkb", pa.binary()), ("srid", pa.int32())])
HEAD_BYTES = 9
HAS_SRID = 0x20000000


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
