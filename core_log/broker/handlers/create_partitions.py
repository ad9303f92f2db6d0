"""CreatePartitions (key 37), versions 0 to 3: more partitions for topics that exist.

Compacted topics are refused, with POLICY_VIOLATION: the newest record of a key would no longer be
the last in one partition. Version 3: over its quota a topic is refused; before, the
client waits afterwards. Deliberately not done: the timeout.
"""

from typing import TYPE_CHECKING

from headwater.core_log.broker.administration import decide_and_commit, permit_of
from headwater.core_log.broker.authorization import denial
from headwater.core_log.broker.dispatch import RequestContext, handles
from headwater.core_log.protocol.error_codes import ErrorCode
from headwater.core_log.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from headwater.core_log.replication.decisions import MorePartitions, RequestRefusal
from headwater.core_log.security.acls import AclOperation, ResourceType

if TYPE_CHECKING:
    from headwater.core_log.broker.broker import Broker

STRICT_FROM = 3


@handles(CreatePartitionsRequest, is_forwarded=True)
async def handle_create_partitions(
    broker: "Broker", request: CreatePartitionsRequest, context: RequestContext
) -> CreatePartitionsResponse:
    refused = {
        each.name: RequestRefusal(denied)
        for each in request.topics
        if (denied := denial(broker, context, AclOperation.ALTER, ResourceType.TOPIC, each.name))
    }
    wanted = [read(each) for each in request.topics if each.name not in refused]
    permit = permit_of(context, strict_from=STRICT_FROM)
    outcome = await decide_and_commit(
        broker,
        lambda: broker.controller.create_partitions(wanted, permit),
        validate_only=request.validate_only,
    )
    if isinstance(outcome, RequestRefusal):
        outcome = {each.name: outcome for each in wanted}
    outcome = {**outcome, **refused}
    return CreatePartitionsResponse(results=[answer(name, each) for name, each in outcome.items()])


def read(topic: CreatePartitionsTopic) -> MorePartitions:
    given = topic.assignments
    assignments = None if given is None else tuple(tuple(each.broker_ids) for each in given)
    return MorePartitions(topic.name, topic.count, assignments)


def answer(name: str, refused: RequestRefusal | None) -> CreatePartitionsTopicResult:
    refused = refused or RequestRefusal(ErrorCode.NONE)
    return CreatePartitionsTopicResult(
        name=name, error_code=refused.code, error_message=refused.message
    )
