"""The tag section that ends a flexible struct: optional fields, each by number and size."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from headwater.core_log.foundation.errors import DecodeError
from headwater.core_log.protocol.fields import Field
from headwater.core_log.protocol.primitives import Codec, end_of, read_varint, write_varint


class TaggedField(NamedTuple):
    field: Field
    place: int  # among the values of its struct
    codec: Codec


Tags = Mapping[int, TaggedField]
"""By tag, in ascending order, which is the order Kafka demands."""


def write_tags(out: bytearray, message: Any, tags: Tags) -> None:
    encoded = []
    for number, (field, _, codec) in tags.items():
        value = getattr(message, field.name)
        if not field.is_default(value):
            content = bytearray()
            codec.write(content, value)
            encoded.append((number, content))
    write_varint(out, len(encoded))
    for number, content in encoded:
        write_varint(out, number)
        write_varint(out, len(content))
        out += content


def read_tags(data: memoryview, position: int, tags: Tags, values: list[Any]) -> int:
    """Puts what it finds among the values. Unknown tags are a newer peer's; they are skipped."""
    count, position = read_varint(data, position)
    for _ in range(count):
        number, position = read_varint(data, position)
        size, position = read_varint(data, position)
        end = end_of(data, position, size)
        known = tags.get(number)
        if known:
            values[known.place], position = known.codec.read(data, position)
            if position != end:
                raise DecodeError("tagged field is not of the size declared", tag=number)
        position = end
    return position
