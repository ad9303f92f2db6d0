"""CreateTopics (key 19), versions 2 to 7: topics with their partitions and configuration.

Version 6: over its quota a topic is refused; before, the client waits afterwards. Deliberately not
done: the timeout (topics exist when the answer is sent), and policies of the user's own.
"""

from collections import Counter
from typing import TYPE_CHECKING

from headwater.core_log.broker.administration import (
    decide_and_commit,
    offline_refused,
    permit_of,
)
from headwater.core_log.broker.authorization import allows
from headwater.core_log.broker.dispatch import RequestContext, handles
from headwater.core_log.protocol.error_codes import ErrorCode
from headwater.core_log.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from headwater.core_log.protocol.primitives import ZERO_UUID
from headwater.core_log.replication.decisions import NewTopic, RequestRefusal
from headwater.core_log.replication.metadata import METADATA_TOPIC, Topic
from headwater.core_log.replication.topic_config import TopicConfigs
from headwater.core_log.security.acls import AclOperation, ResourceType

if TYPE_CHECKING:
    from headwater.core_log.broker.broker import Broker

STRICT_FROM = 6


@handles(CreateTopicsRequest, is_forwarded=True)
async def handle_create_topics(
    broker: "Broker", request: CreateTopicsRequest, context: RequestContext
) -> CreateTopicsResponse:
    refused = list_refused(broker, request, context)
    wanted = [read(each) for each in request.topics if each.name not in refused]
    permit = permit_of(context, strict_from=STRICT_FROM)
    outcome = await decide_and_commit(
        broker,
        lambda: broker.controller.create_topics(wanted, permit),
        validate_only=request.validate_only,
    )
    if isinstance(outcome, RequestRefusal):
        outcome = {each.name: outcome for each in wanted}
    elif not request.validate_only:
        outcome = {
            name: (offline_refused(broker, each) if isinstance(each, Topic) else None) or each
            for name, each in outcome.items()
        }
    configs = broker.configs
    outcome = {**outcome, **refused}
    return CreateTopicsResponse(
        topics=[
            refused_result(name, each)
            if isinstance(each, RequestRefusal)
            else created_result(each, configs, exists=not request.validate_only)
            if allows(broker, context, AclOperation.DESCRIBE_CONFIGS, ResourceType.TOPIC, name)
            else veiled_result(each, exists=not request.validate_only)
            for name, each in outcome.items()
        ]
    )


def list_refused(
    broker: "Broker", request: CreateTopicsRequest, context: RequestContext
) -> dict[str, RequestRefusal]:
    """Returns the topics that the client may not create; the controller refuses duplicates and the
    metadata's own topic for everybody."""
    if allows(broker, context, AclOperation.CREATE, ResourceType.CLUSTER):
        return {}
    times = Counter(each.name for each in request.topics)
    return {
        name: RequestRefusal(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Authorization failed.")
        for name, count in times.items()
        if count == 1
        and name != METADATA_TOPIC
        and not allows(broker, context, AclOperation.CREATE, ResourceType.TOPIC, name)
    }


def read(topic: CreatableTopic) -> NewTopic:
    return NewTopic(
        topic.name,
        topic.num_partitions,
        topic.replication_factor,
        tuple((each.partition_index, tuple(each.broker_ids)) for each in topic.assignments),
        {each.name: each.value for each in topic.configs},
    )


def refused_result(name: str, why: RequestRefusal) -> CreatableTopicResult:
    return CreatableTopicResult(name=name, error_code=why.code, error_message=why.message)


def veiled_result(topic: Topic, *, exists: bool) -> CreatableTopicResult:
    """Returns the result for who may not see a topic's configuration."""
    return CreatableTopicResult(
        name=topic.name,
        topic_id=topic.topic_id if exists else ZERO_UUID,
        error_message=None,
        topic_config_error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    )


def created_result(topic: Topic, configs: TopicConfigs, *, exists: bool) -> CreatableTopicResult:
    """Returns the result; a topic that was only validated has no id."""
    return CreatableTopicResult(
        name=topic.name,
        topic_id=topic.topic_id if exists else ZERO_UUID,
        error_message=None,
        num_partitions=len(topic.partitions),
        replication_factor=len(topic.partitions[0].replicas),
        configs=[
            CreatableTopicConfigs(name=each.key.name, value=each.value, config_source=each.source)
            for each in configs.describe(topic.config)
        ],
    )
