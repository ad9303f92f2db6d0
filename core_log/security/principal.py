"""Principals: on whose behalf a request is made, as in Kafka (`User:alice`)."""

from dataclasses import dataclass

from headwater.core_log.foundation.errors import DecodeError
from headwater.core_log.protocol.message import decode_record, encode_record
from headwater.core_log.protocol.messages.principal_data import DefaultPrincipalData

USER = "User"
FORMAT_VERSION = 0


@dataclass(frozen=True, slots=True)
class Principal:
    """A user. Clients with a certificate and other brokers are users as well, as in Kafka."""

    name: str
    type: str = USER

    def __str__(self) -> str:
        return f"{self.type}:{self.name}"


ANONYMOUS = Principal("ANONYMOUS")
"""Whoever came by a listener that does not authenticate; the name is Kafka's."""
CLUSTER = Principal("__cluster")
"""Another broker of the cluster, which has proved that it knows the cluster secret."""
LOCAL = Principal("__local")
"""Whoever can read this data directory: our own commands and pipelines on this machine."""
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
