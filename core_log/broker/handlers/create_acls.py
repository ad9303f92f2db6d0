"""CreateAcls (key 30), versions 1 to 3: rules that allow or deny operations.

Each ACL has its own answer. Refused while nobody has to authenticate, as in Kafka without an
authorizer. Principals without a type are refused, since no principal equals them.
"""

from typing import TYPE_CHECKING

from headwater.core_log.broker.administration import decide_and_commit
from headwater.core_log.broker.authorization import DISABLED
from headwater.core_log.broker.dispatch import RequestContext, handles
from headwater.core_log.protocol.error_codes import ErrorCode
from headwater.core_log.protocol.messages.create_acls import (
    AclCreationResult,
    CreateAclsRequest,
    CreateAclsResponse,
)
from headwater.core_log.replication.access_changes import create_acls
from headwater.core_log.replication.decisions import RequestRefusal
from headwater.core_log.security.acls import acl_of

if TYPE_CHECKING:
    from headwater.core_log.broker.broker import Broker


@handles(CreateAclsRequest, is_forwarded=True)
async def handle_create_acls(
    broker: "Broker", request: CreateAclsRequest, context: RequestContext
) -> CreateAclsResponse:
    outcome: list[RequestRefusal | None] | RequestRefusal = DISABLED
    wanted = [acl_of(each) for each in request.creations]
    if broker.has_acls:
        outcome = await decide_and_commit(
            broker, lambda: create_acls(broker.image, wanted, broker.new_id)
        )
    if isinstance(outcome, RequestRefusal):
        outcome = [outcome] * len(wanted)
    return CreateAclsResponse(results=[answer(each) for each in outcome])


def answer(refused: RequestRefusal | None) -> AclCreationResult:
    refused = refused or RequestRefusal(ErrorCode.NONE, "")
    return AclCreationResult(error_code=refused.code, error_message=refused.message)
