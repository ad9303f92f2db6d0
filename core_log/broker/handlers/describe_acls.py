"""DescribeAcls (key 29), versions 1 to 3: the rules that a filter matches, by resource.

Refused while nobody has to authenticate, as in Kafka without an authorizer.
"""

from typing import TYPE_CHECKING

from headwater.core_log.broker.authorization import DISABLED
from headwater.core_log.broker.dispatch import RequestContext, handles
from headwater.core_log.protocol.messages.describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)
from headwater.core_log.security.acls import Acl, PatternType, ResourceType, filter_of

if TYPE_CHECKING:
    from headwater.core_log.broker.broker import Broker


@handles(DescribeAclsRequest)
async def handle_describe_acls(
    broker: "Broker", request: DescribeAclsRequest, context: RequestContext
) -> DescribeAclsResponse:
    wanted = filter_of(request)
    if not broker.has_acls:
        return DescribeAclsResponse(error_code=DISABLED.code, error_message=DISABLED.message)
    found = dict[tuple[ResourceType, str, PatternType], list[Acl]]()
    for acl in broker.image.acls.values():
        if wanted.matches(acl):
            pattern = (acl.resource_type, acl.resource_name, acl.pattern_type)
            found.setdefault(pattern, []).append(acl)
    return DescribeAclsResponse(
        error_message=None,
        resources=[
            DescribeAclsResource(
                resource_type=resource_type,
                resource_name=name,
                pattern_type=pattern_type,
                acls=[
                    AclDescription(
                        principal=acl.principal,
                        host=acl.host,
                        operation=acl.operation,
                        permission_type=acl.permission,
                    )
                    for acl in acls
                ],
            )
            for (resource_type, name, pattern_type), acls in found.items()
        ],
    )
