"""DeleteAcls (key 31), versions 1 to 3: removes all rules that a filter matches.

Refused while nobody has to authenticate, as in Kafka without an authorizer.
"""

from typing import TYPE_CHECKING

from headwater.core_log.broker.administration import decide_and_commit
from headwater.core_log.broker.authorization import DISABLED
from headwater.core_log.broker.dispatch import RequestContext, handles
from headwater.core_log.protocol.error_codes import ErrorCode
from headwater.core_log.protocol.messages.delete_acls import (
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from headwater.core_log.replication.access_changes import delete_acls
from headwater.core_log.replication.decisions import RequestRefusal
from headwater.core_log.security.acls import Acl, filter_of, has_unknown

if TYPE_CHECKING:
    from headwater.core_log.broker.broker import Broker

UNKNOWN_ELEMENT = RequestRefusal(ErrorCode.INVALID_REQUEST, "The filter has an unknown element")


@handles(DeleteAclsRequest, is_forwarded=True)
async def handle_delete_acls(
    broker: "Broker", request: DeleteAclsRequest, context: RequestContext
) -> DeleteAclsResponse:
    wanted = [filter_of(each) for each in request.filters]
    known = [each for each in wanted if not has_unknown(each)]
    outcome: list[list[Acl]] | RequestRefusal = DISABLED
    if broker.has_acls:
        outcome = await decide_and_commit(broker, lambda: delete_acls(broker.image, known))
    if isinstance(outcome, RequestRefusal):
        return DeleteAclsResponse(filter_results=[refused_result(outcome) for _ in wanted])
    removed = iter(outcome)
    return DeleteAclsResponse(
        filter_results=[
            refused_result(UNKNOWN_ELEMENT) if has_unknown(each) else result(next(removed))
            for each in wanted
        ]
    )


def refused_result(why: RequestRefusal) -> DeleteAclsFilterResult:
    return DeleteAclsFilterResult(error_code=why.code, error_message=why.message)


def result(removed: list[Acl]) -> DeleteAclsFilterResult:
    return DeleteAclsFilterResult(
        error_message=None,
        matching_acls=[
            DeleteAclsMatchingAcl(
                error_message=None,
                resource_type=acl.resource_type,
                resource_name=acl.resource_name,
                pattern_type=acl.pattern_type,
                principal=acl.principal,
                host=acl.host,
                operation=acl.operation,
                permission_type=acl.permission,
            )
            for acl in removed
        ],
    )
