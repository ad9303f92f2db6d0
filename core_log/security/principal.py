"""Principals: on whose behalf a request is made (`User:alice`), and their names in certificates
(RFC 2253)."""

from collections.abc import Iterator
from dataclasses import dataclass

from headwater.core_log.foundation.errors import DecodeError
from headwater.core_log.protocol.message import decode_record, encode_record
from headwater.core_log.protocol.messages.principal_data import DefaultPrincipalData

USER = "User"
FORMAT_VERSION = 0
NAMES = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.25": "DC",
    "0.9.2342.19200300.100.1.1": "UID",
}
"""Attributes that RFC 2253 names; others are written by number, with their value as it is."""
SEQUENCE, SET, OBJECT_ID, EXPLICIT_VERSION = 0x30, 0x31, 0x06, 0xA0
STRINGS = frozenset({0x0C, 0x13, 0x14, 0x16, 0x1B, 0x1E})
"""UTF8, Printable, Teletex, IA5, General and BMP; Java reads the bytes of each as UTF-8."""
ESCAPED = frozenset(',=+<>#;"\\')
NAME_PLACE = 4
"""The place of the subject among a certificate's fields, after its version: serial number,
algorithm, issuer, validity, subject."""


@dataclass(frozen=True, slots=True)
class Principal:
    """A user. Clients with a certificate and other brokers are users as well, as in Kafka."""

    name: str
    type: str = USER

    def __str__(self) -> str:
        return f"{self.type}:{self.name}"


ANONYMOUS = Principal("ANONYMOUS")
"""A client of a listener that does not authenticate; the name is Kafka's."""
CLUSTER = Principal("__cluster")
"""Another broker of the cluster, which has proved that it knows the cluster secret."""
LOCAL = Principal("__local")
"""A client that can read this data directory: our own commands and pipelines on this machine."""
RESERVED_NAMES = frozenset(each.name for each in (ANONYMOUS, CLUSTER, LOCAL))
"""Names that no user can have."""


def parse_principal(text: str) -> Principal:
    """Parses `User:alice`; raises `ValueError`, with Kafka's words, for anything else."""
    type_, _, name = text.partition(":")
    if not (type_ and name):
        raise ValueError(f"expected a string in format principalType:principalName but got {text}")
    return Principal(name, type_)


def encode_principal(principal: Principal) -> bytes:
    """Returns what an Envelope carries: Kafka's `DefaultPrincipalData`."""
    data = DefaultPrincipalData(type=principal.type, name=principal.name)
    return encode_record(data, FORMAT_VERSION)


def decode_principal(data: bytes | memoryview | None) -> Principal:
    """Returns the principal of an Envelope; a broker of an earlier version has sent none."""
    if data is None:
        return ANONYMOUS
    found = decode_record(DefaultPrincipalData, data)
    if not (found.type and found.name):
        raise DecodeError("a principal has no name")
    return Principal(found.name, found.type)


def subject_of(certificate: bytes) -> str:
    """Returns the subject of a certificate in DER; raises `DecodeError` if it has none."""
    try:
        [(_, signed)] = _elements(certificate, 0, len(certificate))
        (_, content) = next(_elements(signed, 0, len(signed)))
        fields = list(_elements(content, 0, len(content)))
        if fields[0][0] == EXPLICIT_VERSION:
            fields = fields[1:]
        kind, name = fields[NAME_PLACE]
        if kind != SEQUENCE or not name:
            raise DecodeError("a certificate has no subject")
        parts = [_relative_name(part) for _, part in _elements(name, 0, len(name))]
    except (ValueError, IndexError, StopIteration):
        raise DecodeError("a certificate cannot be read", size=len(certificate)) from None
    return ",".join(reversed(parts))


def _relative_name(content: bytes) -> str:
    return "+".join(_attribute(each) for _, each in _elements(content, 0, len(content)))


def _attribute(content: bytes) -> str:
    (_, object_id), (kind, value) = _elements(content, 0, len(content))
    number = _number(object_id)
    name = NAMES.get(number)
    if name is None or kind not in STRINGS:
        head = content[len(content) - len(value) - _head_bytes(len(value)) :]
        return f"{name or number}=#{head.hex()}"
    return f"{name}={_escape(value.decode(errors='replace'))}"


def _escape(text: str) -> str:
    inner = text.strip(" ")
    start = len(text) - len(text.lstrip(" ")) if inner else len(text)
    out = "".join(f"\\{each}" if each in ESCAPED else each for each in inner)
    end = len(text) - start - len(inner)
    return "\\ " * start + out.replace("\0", "\\00") + "\\ " * end


def _number(content: bytes) -> str:
    numbers, value = [], 0
    for byte in content:
        value = value << 7 | byte & 0x7F
        if byte < 0x80:
            numbers.append(value)
            value = 0
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, [first, numbers[0] - 40 * first, *numbers[1:]]))


def _elements(data: bytes, position: int, end: int) -> Iterator[tuple[int, bytes]]:
    """Yields tag and content of each element."""
    while position < end:
        tag, size = data[position], data[position + 1]
        position += 2
        if size >= 0x80:
            count = size & 0x7F
            size = int.from_bytes(data[position : position + count])
            position += count
        if position + size > end:
            raise ValueError("an element is cut")
        yield tag, data[position : position + size]
        position += size


def _head_bytes(size: int) -> int:
    """Bytes of tag and length in front of that much content."""
    return 2 if size < 0x80 else 2 + (size.bit_length() + 7) // 8
