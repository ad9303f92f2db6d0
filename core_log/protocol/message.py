"""Declares each of Kafka's messages once for all its versions, and encodes and decodes them."""

import sys
from dataclasses import dataclass
from struct import error as struct_error
from typing import Any, ClassVar, Generic, TypeVar, cast, dataclass_transform, get_args

from headwater.core_log.foundation.errors import DecodeError
from headwater.core_log.protocol.codec import UnsupportedByVersion, struct_codec
from headwater.core_log.protocol.primitives import Codec, WireReader, number_codec

MessageT = TypeVar("MessageT")
ResponseT = TypeVar("ResponseT")

NEVER = 0x7FFF
SECRETS = frozenset({"auth_bytes", "salted_password"})
"""Fields whose values no text shows."""
"""`flexible_from` of a message that never had tag sections."""

_INT16 = number_codec("h")


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
    return struct_codec(cls, version, is_flexible=version >= cls.flexible_from)
