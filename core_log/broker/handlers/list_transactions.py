"""ListTransactions (key 66), versions 0 to 1: the transactional ids this broker looks after.

Version 1: by how long the transaction has been open. Deliberately not done: by a pattern of the id
(version 2).
"""

from typing import TYPE_CHECKING

from core_log.broker.dispatch import RequestContext, handles
from core_log.groups.transactions import StoredTransaction, TransactionState
from core_log.protocol.messages import list_transactions as messages
from core_log.protocol.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
)

if TYPE_CHECKING:
    from core_log.broker.broker import Broker

STATES = {state.title: state for state in TransactionState}


@handles(ListTransactionsRequest)
async def handle_list_transactions(
    broker: "Broker", request: ListTransactionsRequest, context: RequestContext
) -> ListTransactionsResponse:
    now_ms = broker.clock.now_ms()
    states = tuple(
        messages.TransactionState(
            transactional_id=each.name,
            producer_id=each.current.producer_id,
            transaction_state=each.current.state.title,
        )
        for each in broker.transactions.served()
        if is_wanted(each.current, request, now_ms)
    )
    unknown = tuple(name for name in request.state_filters if name not in STATES)
    return ListTransactionsResponse(unknown_state_filters=unknown, transaction_states=states)


def is_wanted(current: StoredTransaction, request: ListTransactionsRequest, now_ms: int) -> bool:
    if current.state is TransactionState.DEAD:
        return False
    if request.producer_id_filters and current.producer_id not in request.producer_id_filters:
        return False
    if request.state_filters and current.state.title not in request.state_filters:
        return False
    return request.duration_filter < 0 or now_ms - current.started_ms > request.duration_filter
