"""Access control lists in Kafka's terms, and the authorizer that says by them who may do what."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from ipaddress import IPv6Address, ip_address
from typing import Protocol, TypeVar

from headwater.core_log.foundation.errors import DecodeError
from headwater.core_log.protocol.messages.create_acls import AclCreation
from headwater.core_log.security.principal import Principal

WILDCARD = "*"
"""Any host, or with a literal pattern any name."""
CLUSTER_NAME = "kafka-cluster"
"""The name of the one resource of type CLUSTER."""
ANYBODY = "User:*"
UNKNOWN = 0
Kind = TypeVar("Kind", bound=IntEnum)


class ResourceType(IntEnum):
    """Types of resources, with Kafka's numbers."""

    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(IntEnum):
    """How the name of an ACL is compared with a resource's, with Kafka's numbers."""

    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class AclOperation(IntEnum):
    """Operations, with Kafka's numbers."""

    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class Permission(IntEnum):
    """Whether an ACL allows or denies, with Kafka's numbers."""

    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


SUPPORTED_OPERATIONS = {
    ResourceType.TOPIC: (
        AclOperation.READ,
        AclOperation.WRITE,
        AclOperation.CREATE,
        AclOperation.DESCRIBE,
        AclOperation.DELETE,
        AclOperation.ALTER,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
    ),
    ResourceType.GROUP: (
        AclOperation.READ,
        AclOperation.DESCRIBE,
        AclOperation.DELETE,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
    ),
    ResourceType.CLUSTER: (
        AclOperation.CREATE,
        AclOperation.CLUSTER_ACTION,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
        AclOperation.IDEMPOTENT_WRITE,
        AclOperation.ALTER,
        AclOperation.DESCRIBE,
    ),
}
"""The operations whose bits a client can ask for (`include_authorized_operations`)."""
IMPLIES_DESCRIBE = frozenset(
    {
        AclOperation.DESCRIBE,
        AclOperation.READ,
        AclOperation.WRITE,
        AclOperation.DELETE,
        AclOperation.ALTER,
    }
)
IMPLIES_DESCRIBE_CONFIGS = frozenset({AclOperation.DESCRIBE_CONFIGS, AclOperation.ALTER_CONFIGS})
ANSWERS_KEPT_MAX = 10_000
Question = tuple[Principal, str, AclOperation, ResourceType, str]


@dataclass(frozen=True, slots=True)
class Acl:
    """One rule: allows or denies a principal an operation on the resources that its pattern
    matches."""

    resource_type: ResourceType
    resource_name: str
    pattern_type: PatternType
    principal: str
    """TYPE:NAME, or `User:*` for all."""
    host: str
    operation: AclOperation
    permission: Permission


@dataclass(frozen=True, slots=True)
class AclFilter:
    """A choice of ACLs; ANY and None match all."""

    resource_type: ResourceType = ResourceType.ANY
    resource_name: str | None = None
    pattern_type: PatternType = PatternType.ANY
    principal: str | None = None
    host: str | None = None
    operation: AclOperation = AclOperation.ANY
    permission: Permission = Permission.ANY

    def matches(self, acl: Acl) -> bool:
        return (
            self.resource_type in (ResourceType.ANY, acl.resource_type)
            and self._matches_name(acl)
            and self.principal in (None, acl.principal)
            and self.host in (None, acl.host)
            and self.operation in (AclOperation.ANY, acl.operation)
            and self.permission in (Permission.ANY, acl.permission)
        )

    def _matches_name(self, acl: Acl) -> bool:
        """MATCH finds all patterns that the name falls under."""
        wanted, name = self.pattern_type, self.resource_name
        if wanted not in (PatternType.ANY, PatternType.MATCH, acl.pattern_type):
            return False
        if name is None:
            return True
        if wanted is not PatternType.MATCH:
            return name == acl.resource_name
        if acl.pattern_type is PatternType.PREFIXED:
            return name.startswith(acl.resource_name)
        return acl.resource_name in (name, WILDCARD)


def problem_of(acl: Acl) -> str | None:
    """Returns why the ACL cannot be created, in Kafka's words where Kafka refuses it."""
    if acl.resource_type in (ResourceType.UNKNOWN, ResourceType.ANY):
        return f"Invalid resourceType {acl.resource_type.name}"
    if acl.resource_type is ResourceType.CLUSTER and acl.resource_name != CLUSTER_NAME:
        return f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}"
    if acl.pattern_type not in (PatternType.LITERAL, PatternType.PREFIXED):
        return f"Invalid patternType {acl.pattern_type.name}"
    if acl.operation in (AclOperation.UNKNOWN, AclOperation.ANY):
        return f"Invalid operation {acl.operation.name}"
    if acl.permission not in (Permission.DENY, Permission.ALLOW):
        return f"Invalid permissionType {acl.permission.name}"
    if not acl.resource_name:
        return "Invalid empty resource name"
    if ":" not in acl.principal:
        return "The principal must be TYPE:NAME, such as User:alice"
    return None


class Authorizer:
    """Kafka's StandardAuthorizer, pure: answers from the ACLs that it was given last. Without one
    that matches, the answer is no."""

    def __init__(
        self, super_users: Iterable[Principal] = (), *, guards_nodes_only: bool = False
    ) -> None:
        """`super_users` may do everything. With `guards_nodes_only` there are no ACLs: clients do
        not say who they are, and may do all that is not for brokers alone."""
        self._super_users = frozenset(super_users)
        self.guards_nodes_only = guards_nodes_only
        self._acls: list[Acl] = []
        self._literal: dict[tuple[ResourceType, str], list[Acl]] = {}
        self._prefixed: dict[ResourceType, dict[str, list[Acl]]] = {}
        self._answers: dict[Question, bool] = {}

    def use(self, acls: Iterable[Acl]) -> None:
        """Replaces all ACLs."""
        self._acls, self._literal, self._prefixed = list(acls), {}, {}
        self._answers.clear()
        for acl in self._acls:
            if acl.pattern_type is PatternType.PREFIXED:
                prefixes = self._prefixed.setdefault(acl.resource_type, {})
                prefixes.setdefault(acl.resource_name, []).append(acl)
            else:
                key = (acl.resource_type, acl.resource_name)
                self._literal.setdefault(key, []).append(acl)

    def allows(
        self,
        principal: Principal,
        host: str,
        operation: AclOperation,
        resource_type: ResourceType,
        name: str,
    ) -> bool:
        question = (principal, host, operation, resource_type, name)
        known = self._answers.get(question)
        if known is None:
            if len(self._answers) >= ANSWERS_KEPT_MAX:
                self._answers.clear()
            known = self._answers[question] = self._decide(*question)
        return known

    def _decide(
        self,
        principal: Principal,
        host: str,
        operation: AclOperation,
        resource_type: ResourceType,
        name: str,
    ) -> bool:
        if principal in self._super_users:
            return True
        if self.guards_nodes_only:
            return operation is not AclOperation.CLUSTER_ACTION
        who = str(principal)
        address, is_allowed = java_address(host), False
        for acl in self._about(resource_type, name):
            if _is_about(acl, who, address) and _decides(acl, operation):
                if acl.permission is Permission.DENY:
                    return False
                is_allowed = True
        return is_allowed

    def _about(self, resource_type: ResourceType, name: str) -> Iterable[Acl]:
        """Yields the ACLs whose pattern matches the name."""
        yield from self._literal.get((resource_type, name), ())
        if name[:1] != WILDCARD:  # Kafka takes `*` for a prefix of such a name, and passes over it
            yield from self._literal.get((resource_type, WILDCARD), ())
        prefixes = self._prefixed.get(resource_type)
        if prefixes:
            for size in range(1, len(name) + 1):
                yield from prefixes.get(name[:size], ())

    def allows_on_any(
        self, principal: Principal, host: str, operation: AclOperation, resource_type: ResourceType
    ) -> bool:
        """Whether the operation is allowed on at least one resource of the type. As in Kafka an
        operation does not imply another here."""
        if self.allows(principal, host, operation, resource_type, "hardcode"):
            return True
        who, address = str(principal), java_address(host)
        denied: set[tuple[PatternType, str]] = set()
        allowed: set[tuple[PatternType, str]] = set()
        for acl in self._acls:
            if (
                acl.resource_type is resource_type
                and _is_about(acl, who, address)
                and acl.operation in (operation, AclOperation.ALL)
            ):
                patterns = denied if acl.permission is Permission.DENY else allowed
                patterns.add((acl.pattern_type, acl.resource_name))
        everything = (PatternType.LITERAL, WILDCARD)
        if everything in denied or everything in allowed:
            return everything not in denied
        return any(
            each not in denied
            and not any(
                (PatternType.PREFIXED, each[1][:size]) in denied
                for size in range(1, len(each[1]) + 1)
            )
            for each in allowed
        )


def _is_about(acl: Acl, who: str, address: str) -> bool:
    is_named = acl.principal in (who, ANYBODY)
    return is_named and (acl.host == WILDCARD or java_address(acl.host) == address)


def _decides(acl: Acl, operation: AclOperation) -> bool:
    """Whether the ACL says something about the operation. Only what is allowed implies more."""
    if acl.operation in (AclOperation.ALL, operation):
        return True
    if acl.permission is Permission.DENY:
        return False
    if operation is AclOperation.DESCRIBE:
        return acl.operation in IMPLIES_DESCRIBE
    return operation is AclOperation.DESCRIBE_CONFIGS and acl.operation in IMPLIES_DESCRIBE_CONFIGS


def java_address(host: str) -> str:
    """Returns the address as Java writes it, which ACLs of Kafka contain: `::1` is
    `0:0:0:0:0:0:0:1`. Anything else stays as it is."""
    if ":" not in host:
        return host
    try:
        address = ip_address(host)
    except ValueError:
        return host
    if not isinstance(address, IPv6Address):
        return host
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return ":".join(f"{int(group, 16):x}" for group in address.exploded.split(":"))


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
