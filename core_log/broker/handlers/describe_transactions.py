"""DescribeTransactions (key 65), version 0: the state of transactional ids."""

from typing import TYPE_CHECKING

from headwater.core_log.broker.authorization import allows, denial
from headwater.core_log.broker.dispatch import RequestContext, handles
from headwater.core_log.groups import transactions
from headwater.core_log.model.log import indexes_by_topic
from headwater.core_log.protocol.error_codes import ErrorCode
from headwater.core_log.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TopicData,
    TransactionState,
)
from headwater.core_log.security.acls import AclOperation, ResourceType

if TYPE_CHECKING:
    from headwater.core_log.broker.broker import Broker


@handles(DescribeTransactionsRequest)
async def handle_describe_transactions(
    broker: "Broker", request: DescribeTransactionsRequest, context: RequestContext
) -> DescribeTransactionsResponse:
    found = tuple(describe(broker, context, name) for name in request.transactional_ids)
    return DescribeTransactionsResponse(transaction_states=found)


def describe(broker: "Broker", context: RequestContext, name: str) -> TransactionState:
    error = denial(broker, context, AclOperation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, name)
    error = error or (broker.transactions.check(name) if name else ErrorCode.INVALID_REQUEST)
    if error is not ErrorCode.NONE:
        return TransactionState(error_code=error, transactional_id=name)
    each = broker.transactions.find(name)
    if each is None or each.current.state is transactions.TransactionState.DEAD:
        unknown = ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        return TransactionState(error_code=unknown, transactional_id=name)
    current = each.current
    topics = indexes_by_topic(sorted(current.partitions))
    return TransactionState(
        transactional_id=name,
        transaction_state=current.state.title,
        transaction_timeout_ms=current.timeout_ms,
        transaction_start_time_ms=current.started_ms,
        producer_id=current.producer_id,
        producer_epoch=current.producer_epoch,
        topics=tuple(
            TopicData(topic=topic, partitions=indexes)
            for topic, indexes in topics.items()
            if allows(broker, context, AclOperation.DESCRIBE, ResourceType.TOPIC, topic)
        ),
    )
