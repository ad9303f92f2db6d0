"""ACLs and users of SASL/SCRAM for administrators: list, add and remove them."""

import secrets
from collections.abc import Mapping, Sequence
from typing import Any

from headwater.core_log.client.cluster import Cluster
from headwater.core_log.client.retry_policy import check
from headwater.core_log.foundation.errors import ConfigError
from headwater.core_log.protocol.error_codes import ErrorCode
from headwater.core_log.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from headwater.core_log.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from headwater.core_log.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from headwater.core_log.protocol.messages.describe_acls import DescribeAclsRequest
from headwater.core_log.protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
)
from headwater.core_log.security.acls import (
    Acl,
    AclFilter,
    AclOperation,
    PatternType,
    Permission,
    ResourceType,
)
from headwater.core_log.security.sasl_mechanisms import DEFAULT_ROUNDS, hash_password, new_salt

MECHANISMS = {"SCRAM-SHA-256": 1, "SCRAM-SHA-512": 2}
NAMES = {number: name for name, number in MECHANISMS.items()}


class AclAdmin:
    """Administration of ACLs; every answer comes from the cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def create(self, acls: Sequence[Acl]) -> None:
        request = CreateAclsRequest(
            creations=[
                AclCreation(
                    resource_type=acl.resource_type,
                    resource_name=acl.resource_name,
                    resource_pattern_type=acl.pattern_type,
                    principal=acl.principal,
                    host=acl.host,
                    operation=acl.operation,
                    permission_type=acl.permission,
                )
                for acl in acls
            ]
        )

        async def attempt() -> None:
            for result in (await self._cluster.ask_any(request)).results:
                check(result.error_code, message=result.error_message)

        await self._cluster.persist(attempt)

    async def list(self, wanted: AclFilter) -> list[Acl]:
        async def attempt() -> list[Acl]:
            answer = await self._cluster.ask_any(DescribeAclsRequest(**_fields_of(wanted)))
            check(answer.error_code, message=answer.error_message)
            return [
                Acl(
                    ResourceType(resource.resource_type),
                    resource.resource_name,
                    PatternType(resource.pattern_type),
                    acl.principal,
                    acl.host,
                    AclOperation(acl.operation),
                    Permission(acl.permission_type),
                )
                for resource in answer.resources
                for acl in resource.acls
            ]

        return sorted(await self._cluster.persist(attempt), key=_place)

    async def delete(self, wanted: Sequence[AclFilter]) -> int:
        """Returns how many are gone."""
        request = DeleteAclsRequest(
            filters=[DeleteAclsFilter(**_fields_of(each)) for each in wanted]
        )

        async def attempt() -> int:
            count = 0
            for result in (await self._cluster.ask_any(request)).filter_results:
                check(result.error_code, message=result.error_message)
                count += len(result.matching_acls)
            return count

        return await self._cluster.persist(attempt)


def _fields_of(wanted: AclFilter) -> dict[str, Any]:
    """Returns the fields of a filter, as both requests name them."""
    return {
        "resource_type_filter": wanted.resource_type,
        "resource_name_filter": wanted.resource_name,
        "pattern_type_filter": wanted.pattern_type,
        "principal_filter": wanted.principal,
        "host_filter": wanted.host,
        "operation": wanted.operation,
        "permission_type": wanted.permission,
    }


def _place(acl: Acl) -> tuple[object, ...]:
    return (acl.resource_type, acl.resource_name, acl.pattern_type, acl.principal, acl.operation)


class UserAdmin:
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def all(self) -> Mapping[str, Mapping[str, int]]:
        """Returns mechanisms and rounds by user."""

        async def attempt() -> Mapping[str, Mapping[str, int]]:
            answer = await self._cluster.ask_any(DescribeUserScramCredentialsRequest(users=None))
            check(answer.error_code, message=answer.error_message)
            return {
                each.user: {
                    NAMES[info.mechanism]: info.iterations for info in each.credential_infos
                }
                for each in sorted(answer.results, key=lambda each: each.user)
            }

        return await self._cluster.persist(attempt)

    async def set_password(self, user: str, password: str, mechanism: str) -> None:
        """Adds a user, or changes its password, which does not leave this process."""
        salt = new_salt(secrets.randbits)
        salted = hash_password(mechanism, password, salt, DEFAULT_ROUNDS)
        addition = ScramCredentialUpsertion(
            name=user,
            mechanism=MECHANISMS[mechanism],
            iterations=DEFAULT_ROUNDS,
            salt=salt,
            salted_password=salted,
        )
        await self._alter(AlterUserScramCredentialsRequest(upsertions=[addition]))

    async def remove(self, user: str) -> None:
        """Removes all passwords of a user; raises `ConfigError` for an unknown one."""
        known = (await self.all()).get(user)
        if known is None:
            raise ConfigError(
                "the user does not exist", user=user, hint="headwater cluster users list"
            )
        for mechanism in known:  # a request names a user once
            removal = ScramCredentialDeletion(name=user, mechanism=MECHANISMS[mechanism])
            await self._alter(AlterUserScramCredentialsRequest(deletions=[removal]))

    async def _alter(self, request: AlterUserScramCredentialsRequest) -> None:
        async def attempt() -> None:
            [result] = (await self._cluster.ask_any(request)).results
            if result.error_code == ErrorCode.UNACCEPTABLE_CREDENTIAL:
                raise ConfigError("the user cannot be added", reason=result.error_message or "")
            check(result.error_code, message=result.error_message, user=result.user)

        await self._cluster.persist(attempt)
