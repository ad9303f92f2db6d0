"""ListTransactions (key 66), versions 0 to 2: the transactional ids that this broker coordinates.

Version 1: by the age of the open transaction. 2: by a regular expression for the whole id.
Deliberately not done: expressions that Kafka's engine handles and ours might not end: those that
repeat a group, or have more than three repeats.
"""

import re
from typing import TYPE_CHECKING

from headwater.core_log.broker.authorization import allows
from headwater.core_log.broker.dispatch import RequestContext, handles
from headwater.core_log.foundation.name_patterns import LENGTH_MAX
from headwater.core_log.groups.transactions import StoredTransaction, TransactionState
from headwater.core_log.protocol.error_codes import ErrorCode
from headwater.core_log.protocol.messages import list_transactions as messages
from headwater.core_log.protocol.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from headwater.core_log.security.acls import AclOperation, ResourceType

if TYPE_CHECKING:
    from headwater.core_log.broker.broker import Broker

REPEATS, REPEATED_GROUP = re.compile(r"[*+{]"), re.compile(r"\)[*+{?]")
REPEATS_MAX = 3
STATES = {state.title: state for state in TransactionState}


@handles(ListTransactionsRequest)
async def handle_list_transactions(
    broker: "Broker", request: ListTransactionsRequest, context: RequestContext
) -> ListTransactionsResponse:
    now_ms = broker.clock.now_ms()
    try:
        pattern = pattern_of(request.transactional_id_pattern or ".*")
    except re.error:
        return ListTransactionsResponse(error_code=ErrorCode.INVALID_REGULAR_EXPRESSION)
    if broker.transactions.is_loading:
        return ListTransactionsResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    states = tuple(
        messages.TransactionState(
            transactional_id=each.name,
            producer_id=each.current.producer_id,
            transaction_state=each.current.state.title,
        )
        for each in broker.transactions.list_served()
        if is_wanted(each.current, request, now_ms)
        and pattern.fullmatch(each.name)
        and allows(broker, context, AclOperation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, each.name)
    )
    unknown = tuple(name for name in request.state_filters if name not in STATES)
    return ListTransactionsResponse(unknown_state_filters=unknown, transaction_states=states)


def pattern_of(text: str) -> re.Pattern[str]:
    """Returns the pattern; raises `re.error` if it is invalid or may take too long."""
    is_slow = len(REPEATS.findall(text)) > REPEATS_MAX or REPEATED_GROUP.search(text)
    if is_slow or len(text) > LENGTH_MAX:
        raise re.error("expression may take too long")
    return re.compile(text)


def is_wanted(current: StoredTransaction, request: ListTransactionsRequest, now_ms: int) -> bool:
    if current.state is TransactionState.DEAD:
        return False
    if request.producer_id_filters and current.producer_id not in request.producer_id_filters:
        return False
    if request.state_filters and current.state.title not in request.state_filters:
        return False
    return request.duration_filter < 0 or now_ms - current.started_ms > request.duration_filter
