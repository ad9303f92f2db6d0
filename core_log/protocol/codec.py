"""Compiles a declared struct, for one version, into the functions that write and read it."""

from collections.abc import Callable, Iterator, Mapping
from functools import cache
from itertools import groupby
from operator import attrgetter
from typing import Any, NamedTuple
from uuid import UUID

from headwater.core_log.foundation.errors import DecodeError, HeadwaterError
from headwater.core_log.protocol.fields import Field, Number, fields_of
from headwater.core_log.protocol.primitives import (
    COMPACT,
    LONG,
    SHORT,
    UUID_CODEC,
    Codec,
    Read,
    WireReader,
    Write,
    array_codec,
    bytes_codec,
    nullable_struct_codec,
    number_codec,
    numbers_codec,
    records_codec,
    run_codec,
    string_codec,
    write_varint,
)


class TaggedField(NamedTuple):
    field: Field
    slot: int  # in the struct's list of values
    codec: Codec


Tags = Mapping[int, TaggedField]
"""Sorted by tag, ascending, as Kafka requires."""


def write_tags(out: bytearray, message: Any, tags: Tags) -> None:
    encoded = []
    for number, (field, _, codec) in tags.items():
        value = getattr(message, field.name)
        if not field.is_default(value):
            content = bytearray()
            codec.write(content, value)
            encoded.append((number, content))
    if not encoded:
        out.append(0)
        return
    write_varint(out, len(encoded))
    for number, content in encoded:
        write_varint(out, number)
        write_varint(out, len(content))
        out += content


def read_tags(reader: WireReader, tags: Tags, values: list[Any]) -> None:
    """Stores tagged fields in the values. Unknown tags come from a newer peer and are skipped."""
    for _ in range(reader.read_varint()):
        number, size = reader.read_varint(), reader.read_varint()
        reader.check_left(size)
        end = reader.position + size
        known = tags.get(number)
        if known:
            values[known.slot] = known.codec.read(reader)
            if reader.position != end:
                raise DecodeError("tagged field is not of the size declared", tag=number)
        reader.position = end


class UnsupportedByVersion(HeadwaterError):
    """The negotiated version has no field for a value of the message."""


class _Step(NamedTuple):
    """Values that are written together: a field, or a run of numbers. `slot` is its index in the
    values."""

    slot: int | slice
    get: Callable[[Any], Any]
    codec: Codec


@cache
def struct_codec(struct: type, version: int, *, is_flexible: bool) -> Codec:
    """Returns the codec. A flexible struct has compact lengths and ends with a tag section."""
    steps = list(_steps(struct, version, is_flexible=is_flexible))
    tags = _tags(struct, version) if is_flexible else None
    bytes_min = sum(step.codec.bytes_min for step in steps) + is_flexible
    write = _struct_writer(struct, version, steps, tags)
    read = _struct_reader(struct, steps, tags)
    return Codec(write, read, max(bytes_min, 1))


def _struct_writer(struct: type, version: int, steps: list[_Step], tags: Tags | None) -> Write:
    writes = [(step.get, step.codec.write) for step in steps]
    unsayable: list[tuple[Callable[[Any], Any], Field]] = [
        (attrgetter(field.name), field)
        for field in fields_of(struct)
        if not field.is_in(version) and not field.is_ignorable
    ]

    def write(out: bytearray, message: Any) -> None:
        for get, field in unsayable:
            if not field.is_default(get(message)):
                raise _unsupported_error("the version has no such field", struct, field, version)
        for get, write_part in writes:
            write_part(out, get(message))
        if tags is not None:
            write_tags(out, message, tags)

    return write


def _struct_reader(struct: type, steps: list[_Step], tags: Tags | None) -> Read:
    reads = [(step.slot, step.codec.read) for step in steps]
    defaults = [field.default for field in fields_of(struct)]

    def read(reader: WireReader) -> Any:
        values = defaults.copy()
        for slot, read_part in reads:
            values[slot] = read_part(reader)
        if tags is not None:
            if reader.data[reader.position]:
                read_tags(reader, tags, values)
            else:  # nearly all tag sections are empty
                reader.position += 1
        return struct(*values)

    return read


def _tags(struct: type, version: int) -> Tags:
    tagged = {
        field.tag: TaggedField(field, slot, _field_codec(struct, field, version, is_flexible=True))
        for slot, field in enumerate(fields_of(struct))
        if field.tag is not None and field.is_in(version)
    }
    return dict(sorted(tagged.items()))


def _steps(struct: type, version: int, *, is_flexible: bool) -> Iterator[_Step]:
    """Returns the steps. Neighbouring numbers share one call of pack and unpack."""

    def is_sent(field: Field) -> bool:
        return field.is_in(version) and field.tag is None

    def is_number(item: tuple[int, Field]) -> bool:
        _, field = item
        return isinstance(field.kind, Number) and not field.is_array and is_sent(field)

    for are_numbers, group in groupby(enumerate(fields_of(struct)), is_number):
        run = list(group)
        if are_numbers and len(run) > 1:
            yield _run_of_numbers(run)
            continue
        for slot, field in run:
            if is_sent(field):
                codec = _field_codec(struct, field, version, is_flexible=is_flexible)
                yield _Step(slot, attrgetter(field.name), codec)


def _run_of_numbers(run: list[tuple[int, Field]]) -> _Step:
    codes = [field.kind.code for _, field in run if isinstance(field.kind, Number)]
    names = [field.name for _, field in run]
    slot = slice(run[0][0], run[-1][0] + 1)
    return _Step(slot, attrgetter(*names), run_codec("".join(codes)))


def _field_codec(struct: type, field: Field, version: int, *, is_flexible: bool) -> Codec:
    nullable = field.is_nullable_in(version)
    make = _array_codec if field.is_array else _value_codec
    codec = make(field.kind, version, is_flexible=is_flexible, nullable=nullable)
    if nullable or field.nullable_since is None:
        return codec

    def write(out: bytearray, value: Any) -> None:
        if value is None:
            raise _unsupported_error("the version cannot send null", struct, field, version)
        codec.write(out, value)

    return codec._replace(write=write)


def _array_codec(kind: Number | type, version: int, *, is_flexible: bool, nullable: bool) -> Codec:
    length = COMPACT if is_flexible else LONG
    if isinstance(kind, Number):
        return numbers_codec(kind.code, length, nullable=nullable)
    element = _value_codec(kind, version, is_flexible=is_flexible, nullable=False)
    return array_codec(element, length, nullable=nullable)


def _value_codec(kind: Number | type, version: int, *, is_flexible: bool, nullable: bool) -> Codec:
    if isinstance(kind, Number):
        return number_codec(kind.code)
    if kind is UUID:
        return UUID_CODEC
    if kind is str:
        return string_codec(COMPACT if is_flexible else SHORT, nullable=nullable)
    if kind in (bytes, memoryview):
        make = bytes_codec if kind is bytes else records_codec
        return make(COMPACT if is_flexible else LONG, nullable=nullable)
    codec = struct_codec(kind, version, is_flexible=is_flexible)
    return nullable_struct_codec(codec) if nullable else codec


def _unsupported_error(
    problem: str, struct: type, field: Field, version: int
) -> UnsupportedByVersion:
    return UnsupportedByVersion(problem, struct=struct.__name__, field=field.name, version=version)
