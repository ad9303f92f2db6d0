"""Access control lists in Kafka's terms: who may do what, from where, on which resources."""

from dataclasses import dataclass
from enum import IntEnum

WILDCARD = "*"
"""Any host, or with a literal pattern any name."""
CLUSTER_NAME = "kafka-cluster"
"""The name of the one resource of type CLUSTER."""


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
