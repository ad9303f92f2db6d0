"""Declares each of Kafka's messages once for all its versions, and encodes and decodes them."""

# A struct is compiled at first use, for one version, into the functions that write and read it.

import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import groupby
from operator import attrgetter
from struct import error as struct_error
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar, cast, dataclass_transform, get_args
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

MessageT = TypeVar("MessageT")
ResponseT = TypeVar("ResponseT")

NEVER = 0x7FFF
"""`flexible_from` of a message that never had tag sections."""
SECRETS = frozenset({"auth_bytes", "salted_password"})
"""Fields whose values no text shows."""

_INT16 = number_codec("h")


class UnsupportedByVersion(HeadwaterError):
    """The negotiated version has no field for a value of the message."""


class Request(Generic[ResponseT]):
    """A request to a broker; the parameter names its response."""

    __slots__ = ()
    api_key: ClassVar[int]
    versions: ClassVar[tuple[int, int]]
    flexible_from: ClassVar[int]


# Every field has a default, as in Kafka: an error response has only its code. The constructor takes
# them in order for decoding; other code must name them.


@dataclass_transform(frozen_default=True, kw_only_default=True)
def request(*, api_key: int, versions: tuple[int, int], flexible_from: int) -> Any:
    def declare(cls: type) -> Any:
        declared = _declare(cls, versions, flexible_from)
        declared.api_key = api_key
        return declared

    return declare


@dataclass_transform(frozen_default=True, kw_only_default=True)
def response(*, versions: tuple[int, int], flexible_from: int) -> Any:
    return lambda cls: _declare(cls, versions, flexible_from)


@dataclass_transform(frozen_default=True, kw_only_default=True)
def record(
    *, versions: tuple[int, int], flexible_from: int = NEVER, reads_newer: bool = False
) -> Any:
    """Declares a record of Kafka's own topics or of the group protocol, with its version in front.

    `reads_newer`: a newer version only adds fields, and is read without them.
    """

    def declare(cls: type) -> Any:
        declared = _declare(cls, versions, flexible_from)
        declared.reads_newer = reads_newer
        return declared

    return declare


@dataclass_transform(frozen_default=True, kw_only_default=True)
def struct(cls: type[MessageT]) -> type[MessageT]:
    """Declares a part of messages, which has their version."""
    return _value(cls)


def _declare(cls: type, versions: tuple[int, int], flexible_from: int) -> Any:
    declared: Any = _value(cls)
    declared.versions, declared.flexible_from = versions, flexible_from
    return declared


def _value(cls: type[MessageT]) -> type[MessageT]:
    """Declares a class that type checkers see as frozen. Only the constructor is generated:
    `dataclass` would make more for each of three hundred classes, and a broker's start waits for
    it."""
    made: Any = dataclass(eq=False, repr=False, slots=True)(cls)
    made.__eq__, made.__hash__, made.__repr__ = _equal, _hash, _show
    return cast(type[MessageT], made)


def _values_of(message: Any) -> tuple[object, ...]:
    return tuple(getattr(message, name) for name in message.__dataclass_fields__)


def _equal(message: object, other: object) -> bool:
    return type(message) is type(other) and _values_of(message) == _values_of(other)


def _hash(message: object) -> int:
    return hash(_values_of(message))


def _show(message: object) -> str:
    names: Any = type(message).__dataclass_fields__  # type: ignore[attr-defined]
    values = (
        f"{name}={'***' if name in SECRETS else repr(value)}"
        for name, value in zip(names, _values_of(message), strict=True)
    )
    return f"{type(message).__name__}({', '.join(values)})"


def response_type(request: type[Request[ResponseT]]) -> type[ResponseT]:
    """Returns the response class of a request: the parameter of its base, a name in the same
    module."""
    (name,) = get_args(request.__orig_bases__[0])  # type: ignore[attr-defined]
    found: type[ResponseT] = getattr(sys.modules[request.__module__], name.__forward_arg__)
    return found


def encode(message: Any, version: int) -> bytes:
    """Returns the body of a request or response, without its header."""
    out = bytearray()
    encode_into(out, message, version)
    return bytes(out)


def encode_into(out: bytearray, message: Any, version: int) -> None:
    cls = type(message)
    if not _is_declared(cls, version):
        raise UnsupportedByVersion("the version is unknown", message=cls.__name__, version=version)
    _codec(cls, version).write(out, message)


def decode(cls: type[MessageT], data: memoryview, version: int, position: int = 0) -> MessageT:
    """Returns the message at `position`. Bytes after its last field are ignored, as in Kafka."""
    if not _is_declared(cls, version):
        raise DecodeError("the version is unknown", message=cls.__name__, version=version)
    try:
        message: MessageT = _codec(cls, version).read(WireReader(data, position))
    except (IndexError, struct_error, UnicodeDecodeError, DecodeError) as error:
        raise DecodeError(
            "message breaks its format", message=cls.__name__, version=version, reason=str(error)
        ) from error
    return message


def encode_record(record: Any, version: int) -> bytes:
    """Returns a stored key or value: its version, then its body."""
    out = bytearray()
    _INT16.write(out, version)
    encode_into(out, record, version)
    return bytes(out)


def record_version(data: bytes | memoryview) -> int:
    """Returns the version. The version of a key also identifies its kind."""
    if len(data) < _INT16.bytes_min:
        raise DecodeError("record has no version", size=len(data))
    version: int = _INT16.read(WireReader(memoryview(data)))
    return version


def decode_record(cls: type[MessageT], data: bytes | memoryview) -> MessageT:
    declared: Any = cls
    version = record_version(data)
    if declared.reads_newer:
        version = min(version, declared.versions[1])
    return decode(cls, memoryview(data), version, _INT16.bytes_min)


def _is_declared(cls: Any, version: int) -> bool:
    first, last = cls.versions
    return bool(first <= version <= last)


def _codec(cls: Any, version: int) -> Codec:
    return _struct_codec(cls, version, is_flexible=version >= cls.flexible_from)


class _TaggedField(NamedTuple):
    field: Field
    slot: int  # in the struct's list of values
    codec: Codec


_Tags = Mapping[int, _TaggedField]
"""Sorted by tag, ascending, as Kafka requires."""


def _write_tags(out: bytearray, message: Any, tags: _Tags) -> None:
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


def _read_tags(reader: WireReader, tags: _Tags, values: list[Any]) -> None:
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


class _Step(NamedTuple):
    """Values that are written together: a field, or a run of numbers. `slot` is its index in the
    values."""

    slot: int | slice
    get: Callable[[Any], Any]
    codec: Codec


@cache
def _struct_codec(struct: type, version: int, *, is_flexible: bool) -> Codec:
    """Returns the codec. A flexible struct has compact lengths and ends with a tag section."""
    steps = list(_steps(struct, version, is_flexible=is_flexible))
    tags = _tags(struct, version) if is_flexible else None
    bytes_min = sum(step.codec.bytes_min for step in steps) + is_flexible
    write = _struct_writer(struct, version, steps, tags)
    read = _struct_reader(struct, steps, tags)
    return Codec(write, read, max(bytes_min, 1))


def _struct_writer(struct: type, version: int, steps: list[_Step], tags: _Tags | None) -> Write:
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
            _write_tags(out, message, tags)

    return write


def _struct_reader(struct: type, steps: list[_Step], tags: _Tags | None) -> Read:
    reads = [(step.slot, step.codec.read) for step in steps]
    defaults = [field.default for field in fields_of(struct)]

    def read(reader: WireReader) -> Any:
        values = defaults.copy()
        for slot, read_part in reads:
            values[slot] = read_part(reader)
        if tags is not None:
            if reader.data[reader.position]:
                _read_tags(reader, tags, values)
            else:  # nearly all tag sections are empty
                reader.position += 1
        return struct(*values)

    return read


def _tags(struct: type, version: int) -> _Tags:
    tagged = {
        field.tag: _TaggedField(field, slot, _field_codec(struct, field, version, is_flexible=True))
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
    codec = _struct_codec(kind, version, is_flexible=is_flexible)
    return nullable_struct_codec(codec) if nullable else codec


def _unsupported_error(
    problem: str, struct: type, field: Field, version: int
) -> UnsupportedByVersion:
    return UnsupportedByVersion(problem, struct=struct.__name__, field=field.name, version=version)
