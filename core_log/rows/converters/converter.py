"""The wire form of one column: its type and name there, and the conversion in both directions."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from headwater.core_log.records.row_writer import ValueEncoding

DECIMAL = "org.apache.kafka.connect.data.Decimal"
CONNECT_NAMES = {
    pa.bool_(): "boolean",
    pa.int8(): "int8",
    pa.int16(): "int16",
    pa.int32(): "int32",
    pa.int64(): "int64",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.string(): "string",
    pa.binary(): "bytes",
}
Conversion = Callable[[pa.Array], pa.Array]


@dataclass(frozen=True, slots=True)
class Converter:
    """The wire form of one column. A conversion may raise `ValueError`; `None` means no conversion.

    `type` consists of booleans, signed integers, floats, strings, bytes, lists, structs and maps of
    strings.
    """

    type: pa.DataType
    name: str = ""
    """Name of the meaning in Connect and Debezium, such as `io.debezium.time.Date`."""
    parameters: Mapping[str, str] = field(default_factory=dict)
    to_wire: Conversion | None = None
    from_wire: Conversion | None = None
    parts: tuple["Converter", ...] = ()
    """Converters of a list's items, or of a struct's fields."""
    required: frozenset[str] = frozenset()
    """Fields of a struct that are never null; the result of `to_wire` declares that, too."""
    doc: str = ""
    """Documentation text in Debezium's schema."""
    direct: ValueEncoding | None = None
    """JSON encoding that takes the column without `to_wire`."""

    def write(self, column: pa.Array) -> pa.Array:
        return column if self.to_wire is None else self.to_wire(column)

    def read(self, column: pa.Array) -> pa.Array:
        return column if self.from_wire is None else self.from_wire(column)

    def connect_schema(self, *, is_optional: bool) -> dict[str, Any]:
        """Returns the schema with its fields in the order of Kafka Connect's JsonConverter."""
        if pa.types.is_struct(self.type):
            fields = [
                part.connect_schema(is_optional=member.name not in self.required)
                | {"field": member.name}
                for member, part in zip(self.type, self.parts, strict=True)
            ]
            schema: dict[str, Any] = {"type": "struct", "fields": fields}
        elif pa.types.is_list(self.type):
            items = self.parts[0].connect_schema(is_optional=True)
            schema = {"type": "array", "items": items}
        elif pa.types.is_map(self.type):
            key, value = ({"type": "string", "optional": each} for each in (False, True))
            schema = {"type": "map", "keys": key, "values": value}
        else:
            schema = {"type": CONNECT_NAMES[self.type]}
        schema["optional"] = is_optional
        if self.name:
            schema |= {"name": self.name, "version": 1}
        if self.doc:
            schema["doc"] = self.doc
        if self.parameters:
            schema["parameters"] = dict(self.parameters)
        return schema
