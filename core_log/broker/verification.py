"""What Produce says of a batch that its transaction's coordinator does not let in."""

from core_log.protocol.error_codes import ErrorCode

ABORTABLE_FROM = 11
IMPLICIT_ADD_FROM = 12
"""From here on a transactional batch adds its partition to the transaction by itself (KIP-890)."""

NOT_NOW = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
}


def in_words_of(verdict: ErrorCode, version: int) -> ErrorCode:
    """Clients know no coordinator behind Produce: what passes is told by an error that has them
    send the batch again, and nothing else.
    """
    is_passing = verdict in NOT_NOW or (
        verdict is ErrorCode.CONCURRENT_TRANSACTIONS and version < IMPLICIT_ADD_FROM
    )
    if is_passing:
        return ErrorCode.NOT_ENOUGH_REPLICAS
    if verdict is ErrorCode.TRANSACTION_ABORTABLE and version < ABORTABLE_FROM:
        return ErrorCode.INVALID_TXN_STATE
    return verdict
