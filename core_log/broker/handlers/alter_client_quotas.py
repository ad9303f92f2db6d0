"""AlterClientQuotas (key 49), versions 0 to 1: sets and removes quotas of users, clients and
addresses.

Kafka also takes names of hosts, and looks up their addresses once.
"""

from typing import TYPE_CHECKING

from headwater.core_log.broker.administration import decide_and_commit
from headwater.core_log.broker.dispatch import RequestContext, handles
from headwater.core_log.protocol.error_codes import ErrorCode
from headwater.core_log.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    AlteredEntity,
    QuotaAlteration,
    QuotaAlterationResult,
)
from headwater.core_log.replication.access_changes import EntityParts, QuotaChanges, alter_quotas
from headwater.core_log.replication.decisions import RequestRefusal

if TYPE_CHECKING:
    from headwater.core_log.broker.broker import Broker

ACCEPTED = RequestRefusal(ErrorCode.NONE)


@handles(AlterClientQuotasRequest, is_forwarded=True)
async def handle_alter_client_quotas(
    broker: "Broker", request: AlterClientQuotasRequest, context: RequestContext
) -> AlterClientQuotasResponse:
    wanted = [read(each) for each in request.entries]
    outcome = await decide_and_commit(
        broker,
        lambda: alter_quotas(broker.image, wanted),
        validate_only=request.validate_only,
    )
    if isinstance(outcome, RequestRefusal):
        outcome = {each.parts: outcome for each in wanted}
    return AlterClientQuotasResponse(
        entries=[answer(parts, each or ACCEPTED) for parts, each in outcome.items()]
    )


def read(entry: QuotaAlteration) -> QuotaChanges:
    named = {each.entity_type: each.entity_name for each in entry.entity}
    values = tuple((each.key, None if each.remove else each.value) for each in entry.ops)
    return QuotaChanges(tuple(sorted(named.items())), values)


def answer(parts: EntityParts, refused: RequestRefusal) -> QuotaAlterationResult:
    return QuotaAlterationResult(
        error_code=refused.code,
        error_message=refused.message,
        entity=[AlteredEntity(entity_type=kind, entity_name=name) for kind, name in parts],
    )
