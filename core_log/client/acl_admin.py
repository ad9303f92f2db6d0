"""ACLs for administrators: list, create and delete them."""

from collections.abc import Sequence
from typing import Any

from headwater.core_log.client.broker_errors import check
from headwater.core_log.client.cluster import Cluster
from headwater.core_log.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from headwater.core_log.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from headwater.core_log.protocol.messages.describe_acls import DescribeAclsRequest
from headwater.core_log.security.acls import (
    Acl,
    AclFilter,
    AclOperation,
    PatternType,
    Permission,
    ResourceType,
)


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
