"""ACLs and filters of ACLs, from the numbers of requests."""

from enum import IntEnum
from typing import Protocol, TypeVar

from headwater.core_log.foundation.errors import DecodeError
from headwater.core_log.protocol.messages.create_acls import AclCreation
from headwater.core_log.security.acls import (
    Acl,
    AclFilter,
    AclOperation,
    PatternType,
    Permission,
    ResourceType,
)

Kind = TypeVar("Kind", bound=IntEnum)
UNKNOWN = 0


class RequestedFilter(Protocol):
    """DescribeAcls itself, or one filter of DeleteAcls."""

    @property
    def resource_type_filter(self) -> int: ...
    @property
    def resource_name_filter(self) -> str | None: ...
    @property
    def pattern_type_filter(self) -> int: ...
    @property
    def principal_filter(self) -> str | None: ...
    @property
    def host_filter(self) -> str | None: ...
    @property
    def operation(self) -> int: ...
    @property
    def permission_type(self) -> int: ...


def acl_of(wanted: AclCreation) -> Acl:
    return Acl(
        _member(ResourceType, wanted.resource_type),
        wanted.resource_name,
        _member(PatternType, wanted.resource_pattern_type),
        wanted.principal,
        wanted.host,
        _member(AclOperation, wanted.operation),
        _member(Permission, wanted.permission_type),
    )


def filter_of(wanted: RequestedFilter) -> AclFilter:
    return AclFilter(
        _member(ResourceType, wanted.resource_type_filter),
        wanted.resource_name_filter,
        _member(PatternType, wanted.pattern_type_filter),
        wanted.principal_filter,
        wanted.host_filter,
        _member(AclOperation, wanted.operation),
        _member(Permission, wanted.permission_type),
    )


def has_unknown(wanted: AclFilter) -> bool:
    """Whether the filter has a number that this version does not know."""
    kinds = (wanted.resource_type, wanted.pattern_type, wanted.operation, wanted.permission)
    return any(each == UNKNOWN for each in kinds)


def _member(kind: type[Kind], number: int) -> Kind:
    """Returns the member; raises `DecodeError`, which closes the connection as in Kafka, for the
    number of UNKNOWN itself."""
    if number == UNKNOWN:
        raise DecodeError("request about ACLs has an unknown element", field=kind.__name__)
    return kind(number) if number in kind._value2member_map_ else kind(UNKNOWN)
