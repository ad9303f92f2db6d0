"""DeleteTopics (key 20), versions 1 to 6: topics by name, or since version 6 by id.

The internal topics of groups and transactions are refused. Version 5: over its quota a topic is
refused; before, the client waits afterwards. Deliberately not done: the timeout (a deleted topic is
gone when the answer is sent).
"""

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from headwater.core_log.broker.administration import decide_and_commit, permit_of
from headwater.core_log.broker.authorization import allows
from headwater.core_log.broker.dispatch import RequestContext, handles
from headwater.core_log.protocol.error_codes import ErrorCode
from headwater.core_log.protocol.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)
from headwater.core_log.protocol.primitives import ZERO_UUID
from headwater.core_log.replication.decisions import Deletion, RequestRefusal, TopicReference
from headwater.core_log.security.acls import AclOperation, ResourceType

if TYPE_CHECKING:
    from headwater.core_log.broker.broker import Broker

STRICT_FROM = 5

DENIED = RequestRefusal(
    ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.TOPIC_AUTHORIZATION_FAILED.meaning
)


@handles(DeleteTopicsRequest, is_forwarded=True)
async def handle_delete_topics(
    broker: "Broker", request: DeleteTopicsRequest, context: RequestContext
) -> DeleteTopicsResponse:
    wanted = [
        *(TopicReference(name) for name in request.topic_names),
        *(TopicReference(each.name, each.topic_id) for each in request.topics),
    ]
    refused = list_refused(broker, wanted, context)
    allowed = [each for each in wanted if each not in refused]
    permit = permit_of(context, strict_from=STRICT_FROM)
    outcome = await decide_and_commit(
        broker, lambda: broker.controller.delete_topics(allowed, permit), frees_room=True
    )
    if isinstance(outcome, RequestRefusal):
        outcome = [Deletion(*each, outcome) for each in allowed]
    return DeleteTopicsResponse(responses=[answer(each) for each in (*outcome, *refused.values())])


def list_refused(
    broker: "Broker", wanted: Sequence[TopicReference], context: RequestContext
) -> dict[TopicReference, Deletion]:
    """Returns the topics that the client may not delete. An id tells the name to those only who may
    describe the topic, and a name is not told to exist to all others."""
    if allows(broker, context, AclOperation.DELETE, ResourceType.CLUSTER):
        return {}
    refused = dict[TopicReference, Deletion]()
    for reference, count in Counter(wanted).items():
        by_id = broker.image.topic_by_id(reference.topic_id) if reference.name is None else None
        name = reference.name if by_id is None else by_id.name
        if count > 1 or name is None or (reference.name and reference.topic_id != ZERO_UUID):
            continue  # the controller has another error for it
        is_shown = allows(broker, context, AclOperation.DESCRIBE, ResourceType.TOPIC, name)
        if is_shown and broker.image.topic(name) is None:
            continue
        if not is_shown or not allows(
            broker, context, AclOperation.DELETE, ResourceType.TOPIC, name
        ):
            shown = name if is_shown else reference.name
            refused[reference] = Deletion(shown, reference.topic_id, DENIED)
    return refused


def answer(deletion: Deletion) -> DeletableTopicResult:
    refused = deletion.refused or RequestRefusal(ErrorCode.NONE)
    return DeletableTopicResult(
        name=deletion.name,
        topic_id=deletion.topic_id,
        error_code=refused.code,
        error_message=refused.message,
    )
