"""The operation that each API needs on which resource, and Kafka's answers to who may not do it."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

from headwater.core_log.broker.audit_log import result_of, summary_of
from headwater.core_log.broker.dispatch import RequestContext, ServedApi
from headwater.core_log.protocol.error_codes import ErrorCode
from headwater.core_log.protocol.fields import fields_of
from headwater.core_log.protocol.message import response_type
from headwater.core_log.protocol.messages.alter_client_quotas import (
    AlterClientQuotasResponse,
    QuotaAlterationResult,
)
from headwater.core_log.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from headwater.core_log.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
)
from headwater.core_log.protocol.messages.create_acls import AclCreationResult, CreateAclsResponse
from headwater.core_log.protocol.messages.delete_acls import (
    DeleteAclsFilterResult,
    DeleteAclsResponse,
)
from headwater.core_log.protocol.messages.describe_client_quotas import (
    DescribeClientQuotasResponse,
)
from headwater.core_log.protocol.messages.elect_leaders import (
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)
from headwater.core_log.protocol.messages.write_txn_markers import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersResponse,
)
from headwater.core_log.replication.decisions import RequestRefusal
from headwater.core_log.replication.metadata import METADATA_ID, METADATA_TOPIC
from headwater.core_log.security.acls import (
    CLUSTER_NAME,
    SUPPORTED_OPERATIONS,
    AclOperation,
    ResourceType,
)

if TYPE_CHECKING:
    from headwater.core_log.broker.broker import Broker

DISABLED = RequestRefusal(ErrorCode.SECURITY_DISABLED, "No Authorizer is configured.")


class Need(NamedTuple):
    """An operation on a kind of resource."""

    operation: AclOperation
    resource_type: ResourceType


def _on(resource_type: ResourceType, *operations: AclOperation) -> tuple[Need, ...]:
    return tuple(Need(each, resource_type) for each in operations)


ALTER, DESCRIBE = AclOperation.ALTER, AclOperation.DESCRIBE
CLUSTER_ACTION = AclOperation.CLUSTER_ACTION
GROUP, TOPIC = ResourceType.GROUP, ResourceType.TOPIC
CLUSTER, TRANSACTIONAL_ID = ResourceType.CLUSTER, ResourceType.TRANSACTIONAL_ID

# An API is in one of three tables. A broker with an authorizer refuses one that is in none.
OPEN = frozenset({17, 18, 36})
"""APIs for everybody: SaslHandshake, ApiVersions, SaslAuthenticate."""

WHOLE: Mapping[int, tuple[AclOperation, ...]] = {
    27: (ALTER, CLUSTER_ACTION),
    29: (DESCRIBE,),
    30: (ALTER,),
    31: (ALTER,),
    35: (DESCRIBE,),
    43: (ALTER,),
    45: (ALTER,),
    46: (DESCRIBE,),
    48: (AclOperation.DESCRIBE_CONFIGS,),
    49: (AclOperation.ALTER_CONFIGS,),
    50: (DESCRIBE,),
    51: (ALTER,),
    52: (CLUSTER_ACTION,),
    53: (CLUSTER_ACTION,),
    54: (CLUSTER_ACTION,),
    55: (DESCRIBE,),
    56: (CLUSTER_ACTION,),
    57: (ALTER,),
    58: (CLUSTER_ACTION,),
    59: (CLUSTER_ACTION,),
    62: (CLUSTER_ACTION,),
    63: (CLUSTER_ACTION,),
    64: (ALTER,),
    67: (CLUSTER_ACTION,),
    74: (AclOperation.DESCRIBE_CONFIGS,),
    80: (ALTER,),
    81: (ALTER,),
    82: (CLUSTER_ACTION,),
}
"""APIs that need one of these operations on the cluster, which is asked before their handler."""

PARTS: Mapping[int, tuple[Need, ...]] = {
    0: (*_on(TOPIC, AclOperation.WRITE), *_on(TRANSACTIONAL_ID, AclOperation.WRITE)),
    1: (*_on(TOPIC, AclOperation.READ), *_on(CLUSTER, CLUSTER_ACTION)),
    2: _on(TOPIC, DESCRIBE),
    3: (*_on(TOPIC, DESCRIBE, AclOperation.CREATE), *_on(CLUSTER, DESCRIBE, AclOperation.CREATE)),
    8: (*_on(GROUP, AclOperation.READ), *_on(TOPIC, AclOperation.READ)),
    9: (*_on(GROUP, DESCRIBE), *_on(TOPIC, DESCRIBE)),
    10: (*_on(GROUP, DESCRIBE), *_on(TRANSACTIONAL_ID, DESCRIBE)),
    11: _on(GROUP, AclOperation.READ),
    12: _on(GROUP, AclOperation.READ),
    13: _on(GROUP, AclOperation.READ),
    14: _on(GROUP, AclOperation.READ),
    15: _on(GROUP, DESCRIBE),
    16: (*_on(CLUSTER, DESCRIBE), *_on(GROUP, DESCRIBE)),
    19: (
        *_on(CLUSTER, AclOperation.CREATE),
        *_on(TOPIC, AclOperation.CREATE, AclOperation.DESCRIBE_CONFIGS),
    ),
    20: (*_on(CLUSTER, AclOperation.DELETE), *_on(TOPIC, DESCRIBE, AclOperation.DELETE)),
    21: _on(TOPIC, AclOperation.DELETE),
    22: (
        *_on(TRANSACTIONAL_ID, AclOperation.WRITE),
        *_on(CLUSTER, AclOperation.IDEMPOTENT_WRITE),
        *_on(TOPIC, AclOperation.WRITE),
    ),
    23: (*_on(CLUSTER, CLUSTER_ACTION), *_on(TOPIC, DESCRIBE)),
    24: (
        *_on(TRANSACTIONAL_ID, AclOperation.WRITE),
        *_on(TOPIC, AclOperation.WRITE),
        *_on(CLUSTER, CLUSTER_ACTION),
    ),
    25: (*_on(TRANSACTIONAL_ID, AclOperation.WRITE), *_on(GROUP, AclOperation.READ)),
    26: _on(TRANSACTIONAL_ID, AclOperation.WRITE),
    28: (
        *_on(TRANSACTIONAL_ID, AclOperation.WRITE),
        *_on(GROUP, AclOperation.READ),
        *_on(TOPIC, AclOperation.READ),
    ),
    32: (*_on(TOPIC, AclOperation.DESCRIBE_CONFIGS), *_on(CLUSTER, AclOperation.DESCRIBE_CONFIGS)),
    33: (*_on(TOPIC, AclOperation.ALTER_CONFIGS), *_on(CLUSTER, AclOperation.ALTER_CONFIGS)),
    37: _on(TOPIC, ALTER),
    42: _on(GROUP, AclOperation.DELETE),
    44: (*_on(TOPIC, AclOperation.ALTER_CONFIGS), *_on(CLUSTER, AclOperation.ALTER_CONFIGS)),
    47: (*_on(GROUP, AclOperation.DELETE), *_on(TOPIC, AclOperation.READ)),
    60: _on(CLUSTER, DESCRIBE),
    61: _on(TOPIC, AclOperation.READ),
    65: (*_on(TRANSACTIONAL_ID, DESCRIBE), *_on(TOPIC, DESCRIBE)),
    66: _on(TRANSACTIONAL_ID, DESCRIBE),
    75: _on(TOPIC, DESCRIBE),
}
"""APIs whose handler asks for each part of a request. It refuses that part, or leaves it out."""

ADMINISTRATION = frozenset({19, 20, 21, 30, 31, 33, 37, 42, 43, 44, 45, 47, 49, 51, 57, 64, 80, 81})
"""APIs that change something for others, which the audit writes down."""

NOT_ASKED = -0x8000_0000
"""Kafka's word for authorized operations that were not asked for."""

DENIALS = {
    TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}


def allows(
    broker: "Broker",
    context: RequestContext,
    operation: AclOperation,
    resource_type: ResourceType,
    name: str = CLUSTER_NAME,
) -> bool:
    """Whether the client may do this on the resource."""
    authorizer = broker.authorizer
    return authorizer is None or authorizer.allows(
        context.principal, context.client_host, operation, resource_type, name
    )


def denial(
    broker: "Broker",
    context: RequestContext,
    operation: AclOperation,
    resource_type: ResourceType,
    name: str = CLUSTER_NAME,
) -> ErrorCode:
    """Returns the error of who may not do this on the resource; NONE for all others."""
    is_allowed = allows(broker, context, operation, resource_type, name)
    return ErrorCode.NONE if is_allowed else DENIALS[resource_type]


def topic_denial(
    broker: "Broker", context: RequestContext, operation: AclOperation, topic: str | bytes
) -> ErrorCode:
    """Returns the error of who may not do this on a topic, by name or id. The cluster's metadata
    are for its brokers. An unknown id is for the handler to refuse."""
    if topic in (METADATA_TOPIC, METADATA_ID.bytes):
        is_broker = allows(broker, context, CLUSTER_ACTION, CLUSTER)
        return ErrorCode.NONE if is_broker else ErrorCode.TOPIC_AUTHORIZATION_FAILED
    if not isinstance(topic, str):
        known = broker.image.topic_by_id(UUID(bytes=topic))
        if known is None:
            return ErrorCode.NONE
        topic = known.name
    return denial(broker, context, operation, TOPIC, topic)


def cluster_operations(broker: "Broker", context: RequestContext) -> int:
    """Returns the operations on the cluster; none for who may not describe it."""
    if not allows(broker, context, DESCRIBE, CLUSTER):
        return 0
    return authorized_operations(broker, context, CLUSTER)


def authorized_operations(
    broker: "Broker", context: RequestContext, resource_type: ResourceType, name: str = CLUSTER_NAME
) -> int:
    """Returns the operations that the client may do on the resource, one bit each."""
    return sum(
        1 << each
        for each in SUPPORTED_OPERATIONS[resource_type]
        if allows(broker, context, each, resource_type, name)
    )


async def answer(broker: "Broker", served: ServedApi, request: Any, context: RequestContext) -> Any:
    """Returns the handler's response, or the refusal of the whole request."""
    assert served.handler is not None, "an API without a raw handler has an ordinary one"
    if broker.authorizer is None:
        return await served.handler(broker, request, context)
    is_refused = not _may_ask(broker, served.api_key, context)
    if is_refused:
        code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        response = refuse(request, code, context.api_version)
    else:
        response = await served.handler(broker, request, context)
    if is_refused or served.api_key in ADMINISTRATION:
        note = broker.audit.note_refusal if is_refused else broker.audit.note
        result, what = result_of(response), summary_of(request)
        note(served.name, context.principal, context.client_host, result, what)
    return response


def _may_ask(broker: "Broker", api_key: int, context: RequestContext) -> bool:
    if api_key in OPEN or api_key in PARTS:
        return True
    needed = WHOLE.get(api_key, ())
    return any(allows(broker, context, each, CLUSTER) for each in needed)


def refuse(request: Any, code: ErrorCode, version: int) -> Any:
    """Returns the response to a request that is refused whole."""
    if type(request).api_key in REFUSALS:
        return REFUSALS[type(request).api_key](request, code)
    kind: Any = response_type(type(request))
    words = {"error_code": code, "error_message": code.meaning}
    known = {each.name for each in fields_of(kind) if each.is_in(version)}
    return kind(**{name: value for name, value in words.items() if name in known})


def _refuse_acls(request: Any, code: ErrorCode) -> CreateAclsResponse:
    result = AclCreationResult(error_code=code, error_message=code.meaning)
    return CreateAclsResponse(results=[result] * len(request.creations))


def _refuse_filters(request: Any, code: ErrorCode) -> DeleteAclsResponse:
    result = DeleteAclsFilterResult(error_code=code, error_message=code.meaning)
    return DeleteAclsResponse(filter_results=[result] * len(request.filters))


def _refuse_users(request: Any, code: ErrorCode) -> AlterUserScramCredentialsResponse:
    users = dict.fromkeys(each.name for each in (*request.deletions, *request.upsertions))
    return AlterUserScramCredentialsResponse(
        results=[
            AlterUserScramCredentialsResult(user=user, error_code=code, error_message=code.meaning)
            for user in users
        ]
    )


def _refuse_markers(request: Any, code: ErrorCode) -> WriteTxnMarkersResponse:
    return WriteTxnMarkersResponse(
        markers=[
            WritableTxnMarkerResult(
                producer_id=marker.producer_id,
                topics=[
                    WritableTxnMarkerTopicResult(
                        name=topic.name,
                        partitions=[
                            WritableTxnMarkerPartitionResult(partition_index=each, error_code=code)
                            for each in topic.partition_indexes
                        ],
                    )
                    for topic in marker.topics
                ],
            )
            for marker in request.markers
        ]
    )


def _refuse_elections(request: Any, code: ErrorCode) -> ElectLeadersResponse:
    return ElectLeadersResponse(
        error_code=code,
        replica_election_results=[
            ReplicaElectionResult(
                topic=topic.topic,
                partition_result=[
                    PartitionResult(partition_id=each, error_code=code, error_message=code.meaning)
                    for each in topic.partitions
                ],
            )
            for topic in request.topic_partitions or ()
        ],
    )


def _refuse_moves(request: Any, code: ErrorCode) -> AlterPartitionReassignmentsResponse:
    return AlterPartitionReassignmentsResponse(
        error_code=code,
        error_message=code.meaning,
        responses=[
            ReassignableTopicResponse(
                name=topic.name,
                partitions=[
                    ReassignablePartitionResponse(
                        partition_index=each.partition_index,
                        error_code=code,
                        error_message=code.meaning,
                    )
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ],
    )


def _refuse_quotas(request: Any, code: ErrorCode) -> AlterClientQuotasResponse:
    return AlterClientQuotasResponse(
        entries=[
            QuotaAlterationResult(
                error_code=code, error_message=code.meaning, entity=list(each.entity)
            )
            for each in request.entries
        ]
    )


def _refuse_description(_: Any, code: ErrorCode) -> DescribeClientQuotasResponse:
    return DescribeClientQuotasResponse(error_code=code, error_message=code.meaning, entries=None)


REFUSALS: Mapping[int, Callable[[Any, ErrorCode], Any]] = {
    27: _refuse_markers,
    30: _refuse_acls,
    31: _refuse_filters,
    43: _refuse_elections,
    45: _refuse_moves,
    48: _refuse_description,
    49: _refuse_quotas,
    51: _refuse_users,
}
"""The refusals of APIs whose response has an error for each part."""
