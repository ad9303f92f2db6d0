"""Kafka's StandardAuthorizer, pure: which principal may do what, by super users and ACLs."""

from collections.abc import Iterable
from ipaddress import IPv6Address, ip_address

from headwater.core_log.security.acls import (
    WILDCARD,
    Acl,
    AclOperation,
    PatternType,
    Permission,
    ResourceType,
)
from headwater.core_log.security.principal import Principal

ANYBODY = "User:*"
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


class Authorizer:
    """Answers from the ACLs that it was given last. Without one that matches, the answer is no."""

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
