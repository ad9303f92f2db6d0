"""Maps of text on the wire, which are JSON internally, because every target supports that."""

import json

import pyarrow as pa
import pyarrow.compute as pc

JSON = "io.debezium.data.Json"
FORM, AS_MAP = "form", "map"
"""A parameter of JSON columns, and its value if the wire has a map for them."""
MAP = pa.map_(pa.string(), pa.string())


def to_maps(column: pa.Array) -> pa.MapArray:
    """Converts objects whose members are strings or null, one by one: few tables have them."""
    return pa.array(
        [None if text is None else list(json.loads(text).items()) for text in column.to_pylist()],
        MAP,
    )


def from_maps(column: pa.MapArray) -> pa.Array:
    return pa.array(
        [None if pairs is None else object_text(dict(pairs)) for pairs in column.to_pylist()],
        pa.string(),
    )


def object_text(pairs: dict[str, str | None]) -> str:
    return json.dumps(pairs, ensure_ascii=False, separators=(",", ":"))


def pairs_of(column: pa.MapArray) -> tuple[pa.Array, pa.Array, pa.Array]:
    """Returns keys and values of all maps, and the number of entries of each map."""
    offsets = column.offsets
    first, count = offsets[0].as_py(), offsets[-1].as_py() - offsets[0].as_py()
    counts = pc.subtract(offsets[1:], offsets[:-1])
    return column.keys.slice(first, count), column.items.slice(first, count), counts


def has_map(kind: pa.DataType) -> bool:
    """Returns whether the type contains a map at any depth."""
    if pa.types.is_map(kind):
        return True
    if pa.types.is_list(kind):
        return has_map(kind.value_type)
    return pa.types.is_struct(kind) and any(has_map(member.type) for member in kind)
