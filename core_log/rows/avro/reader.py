"""Reads Avro's binary encoding into columns, field by field for all rows at once."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from headwater.core_log.foundation.array_types import Int64Array, UInt8Array
from headwater.core_log.foundation.errors import DecodeError
from headwater.core_log.records.varint import read_varints
from headwater.core_log.rows.arrow_buffers import list_like

AvroSchema = Any
"""A name, a list of branches, or an object: an Avro schema parsed by `json`."""

FLOATS = {"float": ("<f4", pa.float32()), "double": ("<f8", pa.float64())}


@dataclass(frozen=True, slots=True)
class AvroReader:
    """A reader for one writer's schema. Raises `ValueError` if the bytes are not values of it."""

    schema: AvroSchema
    names: Mapping[str, AvroSchema]
    """Records by full name, because a schema defines them once and then only names them."""

    @classmethod
    def of(cls, schema: AvroSchema) -> "AvroReader":
        names: dict[str, AvroSchema] = {}
        _collect(schema, names, "")
        return cls(schema, names)

    def read(self, data: UInt8Array, starts: Int64Array, ends: Int64Array) -> pa.Array:
        """Returns one value between each start and its end; they are adjacent in `data`."""
        try:
            column, found = _Columns(data, self.names).read(self.schema, starts, ends)
        except (DecodeError, IndexError, RecursionError) as error:
            raise ValueError("the bytes are not a value of the schema") from error
        if (found != ends).any():
            raise ValueError("bytes are left over")
        return column


def _collect(schema: AvroSchema, names: dict[str, AvroSchema], namespace: str) -> None:
    if isinstance(schema, list):
        for branch in schema:
            _collect(branch, names, namespace)
    elif isinstance(schema, dict):
        if "name" in schema:
            space = schema.get("namespace", namespace)
            is_full = "." in schema["name"] or not space
            full = schema["name"] if is_full else f"{space}.{schema['name']}"
            names[full] = names[schema["name"]] = schema
            namespace = full.rpartition(".")[0]
        for field in schema.get("fields", ()):
            _collect(field["type"], names, namespace)
        for part in ("items", "values"):
            if part in schema:
                _collect(schema[part], names, namespace)
        if isinstance(schema.get("type"), dict | list):
            _collect(schema["type"], names, namespace)


def _pair(values: AvroSchema) -> list[dict[str, AvroSchema]]:
    """Returns the fields of a map's entry."""
    return [{"name": "key", "type": "string"}, {"name": "value", "type": values}]


@dataclass(frozen=True, slots=True)
class _Columns:
    data: UInt8Array
    names: Mapping[str, AvroSchema]

    def read(
        self, schema: AvroSchema, starts: Int64Array, ends: Int64Array
    ) -> tuple[pa.Array, Int64Array]:
        """Returns the values that begin at `starts`, and where they end."""
        if isinstance(schema, list):
            return self._union(schema, starts, ends)
        kind = schema["type"] if isinstance(schema, dict) else schema
        if isinstance(kind, dict | list):
            return self.read(kind, starts, ends)
        if kind in self.names:
            return self.read(self.names[kind], starts, ends)
        if kind == "record":
            return self._record(schema, starts, ends)
        if kind == "array":
            return self._array(schema["items"], starts, ends)
        if kind == "map":
            pair = {"type": "record", "fields": _pair(schema["values"])}
            pairs, found = self._array(pair, starts, ends)
            keys, values = pairs.values.flatten()
            return pa.MapArray.from_arrays(pairs.offsets, keys, values), found
        if kind == "enum":
            numbers, found = self._numbers(starts, ends)
            return pa.array(schema["symbols"], pa.string()).take(pa.array(numbers)), found
        if kind == "fixed":
            found = starts + schema["size"]
            return self._slices(pa.binary(), starts, found, ends), found
        return self._primitive(kind, starts, ends)

    def _primitive(
        self, kind: str, starts: Int64Array, ends: Int64Array
    ) -> tuple[pa.Array, Int64Array]:
        if kind == "null":
            return pa.nulls(len(starts)), starts
        if kind in ("int", "long"):
            numbers, found = self._numbers(starts, ends)
            return pa.array(numbers, pa.int64()), found
        if kind == "boolean":
            bits = self._to_fixed(starts, ends, width=1)[:, 0]
            if (bits > 1).any():
                raise ValueError("the value is not a boolean")
            return pa.array(bits.astype(np.bool_)), starts + 1
        if kind in FLOATS:
            dtype, float_type = FLOATS[kind]
            width = int(dtype[-1])
            numbers = self._to_fixed(starts, ends, width=width).reshape(-1).view(dtype)
            return pa.array(numbers, float_type), starts + width
        if kind in ("string", "bytes"):
            lengths, begins = self._numbers(starts, ends)
            found = begins + lengths
            if (lengths < 0).any():
                raise ValueError("the length is negative")
            text = pa.string() if kind == "string" else pa.binary()
            return self._slices(text, begins, found, ends), found
        raise ValueError("the Avro type is not supported in a table")

    def _numbers(self, starts: Int64Array, ends: Int64Array) -> tuple[Int64Array, Int64Array]:
        if not len(starts):
            return starts, starts
        if (starts >= ends).any():
            raise ValueError("a value ends too early")
        numbers, found = read_varints(self.data, starts)
        if (found > ends).any():
            raise ValueError("a value ends too early")
        return numbers, found

    def _to_fixed(self, starts: Int64Array, ends: Int64Array, *, width: int) -> UInt8Array:
        if (starts + width > ends).any():
            raise ValueError("a value ends too early")
        found: UInt8Array = self.data[starts[:, None] + np.arange(width)]
        return found

    def _slices(
        self, kind: pa.DataType, starts: Int64Array, found: Int64Array, ends: Int64Array
    ) -> pa.Array:
        if (found > ends).any():
            raise ValueError("a value ends too early")
        marks = np.stack((starts, found), axis=1).reshape(-1)
        if not len(marks):
            return pa.array([], kind)
        bounds = pa.py_buffer(np.append(marks, marks[-1:]).astype(np.int32))
        buffers = [None, bounds, pa.py_buffer(self.data)]
        parts = pa.Array.from_buffers(kind, len(marks), buffers)
        column = parts.take(pa.array(np.arange(0, len(marks), 2)))
        column.validate(full=True)
        return column

    def _union(
        self, branches: list[AvroSchema], starts: Int64Array, ends: Int64Array
    ) -> tuple[pa.Array, Int64Array]:
        """Reads a union of null and one other branch, which Connect uses for an optional field."""
        others = [branch for branch in branches if branch != "null"]
        if len(others) != 1 or len(branches) > 2:
            raise ValueError("a union of several types is not supported in a table")
        chosen, found = self._numbers(starts, ends)
        if ((chosen < 0) | (chosen >= len(branches))).any():
            raise ValueError("a union does not have this branch")
        is_there = chosen == branches.index(others[0])
        column, found_there = self.read(others[0], found[is_there], ends[is_there])
        found = found.copy()
        found[is_there] = found_there
        if is_there.all():
            return column, found
        indices = np.zeros(len(starts), np.int64)
        indices[is_there] = np.arange(len(column))
        return column.take(pa.array(indices, mask=~is_there)), found

    def _record(
        self, schema: Mapping[str, Any], starts: Int64Array, ends: Int64Array
    ) -> tuple[pa.Array, Int64Array]:
        names, columns, found = [], [], starts
        for field in schema["fields"]:
            column, found = self.read(field["type"], found, ends)
            names.append(field["name"])
            columns.append(column)
        if not names:
            return pa.array([{}] * len(starts), pa.struct([])), found
        return pa.StructArray.from_arrays(columns, names), found

    def _array(
        self, items: AvroSchema, starts: Int64Array, ends: Int64Array
    ) -> tuple[pa.Array, Int64Array]:
        """Reads one item of every array that has one left, until none has."""
        found, totals = starts.copy(), np.zeros(len(starts), np.int64)
        left, going = np.zeros(len(starts), np.int64), np.arange(len(starts))
        owners, columns = [], []
        while len(going):
            going = self._next_blocks(going, left, found, ends)
            if not len(going):
                break
            column, found[going] = self.read(items, found[going], ends[going])
            columns.append(column)
            owners.append(going)
            totals[going] += 1
            left[going] -= 1
        offsets = pa.array(np.concatenate(([0], np.cumsum(totals))), pa.int32())
        if not columns:
            nothing, _ = self.read(items, starts[:0], ends[:0])
            return pa.ListArray.from_arrays(offsets, nothing), found
        order = np.argsort(np.concatenate(owners), kind="stable")
        whole = pa.concat_arrays(columns).take(pa.array(order))
        return pa.ListArray.from_arrays(offsets, whole), found

    def _next_blocks(
        self, going: Int64Array, left: Int64Array, found: Int64Array, ends: Int64Array
    ) -> Int64Array:
        """Opens the next block of each array whose block has ended; returns the arrays that
        continue."""
        fresh = going[left[going] == 0]
        counts, found[fresh] = self._numbers(found[fresh], ends[fresh])
        sized = fresh[counts < 0]  # the block's size in bytes follows a negative count
        _, found[sized] = self._numbers(found[sized], ends[sized])
        left[fresh] = np.abs(np.maximum(counts, -(2**62)))
        # An item takes at least one byte: a larger count would loop for very long.
        if (left[fresh] > ends[fresh] - found[fresh]).any():
            raise ValueError("an array is longer than its record")
        return going[left[going] > 0]


def fit(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """Returns Avro's column in its wire type; raises `ValueError` if it has another kind."""
    if pa.types.is_null(column.type):
        return column.cast(kind)
    if pa.types.is_struct(kind) and pa.types.is_struct(column.type):
        members = [
            fit(part, member.type) for part, member in zip(column.flatten(), kind, strict=True)
        ]
        mask = column.is_null() if column.null_count else None
        return pa.StructArray.from_arrays(members, fields=list(kind), mask=mask)
    if pa.types.is_list(kind) and pa.types.is_list(column.type):
        return list_like(column, fit(column.flatten(), kind.value_type))
    if column.type == kind:
        return column
    if pa.types.is_integer(kind) and pa.types.is_integer(column.type):
        return column.cast(kind)
    raise ValueError("the column has another type")
