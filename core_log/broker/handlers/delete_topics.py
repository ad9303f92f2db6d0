"""DeleteTopics (key 20), versions 1 to 6: topics by name, or since version 6 by id.

The internal topics of groups and transactions are refused. Deliberately not done: the timeout (a
deleted topic is gone when the answer is sent).
"""

from typing import TYPE_CHECKING

from headwater.core_log.broker.administration import decide_and_commit
from headwater.core_log.broker.dispatch import RequestContext, handles
from headwater.core_log.protocol.error_codes import ErrorCode
from headwater.core_log.protocol.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)
from headwater.core_log.replication.decisions import Deletion, RequestRefusal, TopicReference

if TYPE_CHECKING:
    from headwater.core_log.broker.broker import Broker


@handles(DeleteTopicsRequest, is_forwarded=True)
async def handle_delete_topics(
    broker: "Broker", request: DeleteTopicsRequest, context: RequestContext
) -> DeleteTopicsResponse:
    wanted = [
        *(TopicReference(name) for name in request.topic_names),
        *(TopicReference(each.name, each.topic_id) for each in request.topics),
    ]
    outcome = await decide_and_commit(
        broker, lambda: broker.controller.delete_topics(wanted), frees_room=True
    )
    if isinstance(outcome, RequestRefusal):
        outcome = [Deletion(*each, outcome) for each in wanted]
    return DeleteTopicsResponse(responses=[answer(each) for each in outcome])


def answer(deletion: Deletion) -> DeletableTopicResult:
    refused = deletion.refused or RequestRefusal(ErrorCode.NONE)
    return DeletableTopicResult(
        name=deletion.name,
        topic_id=deletion.topic_id,
        error_code=refused.code,
        error_message=refused.message,
    )
