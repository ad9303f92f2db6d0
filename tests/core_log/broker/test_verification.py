"""A batch that is not let into a transaction is refused in words that its client acts upon."""

import pytest

from headwater.core_log.broker.transaction_verification import in_words_of
from headwater.core_log.protocol.error_codes import ErrorCode


@pytest.mark.parametrize(
    ("verdict", "version", "told"),
    [
        (ErrorCode.NONE, 9, ErrorCode.NONE),
        (ErrorCode.INVALID_PRODUCER_EPOCH, 9, ErrorCode.INVALID_PRODUCER_EPOCH),
        (ErrorCode.INVALID_PRODUCER_ID_MAPPING, 13, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, 9, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.NOT_COORDINATOR, 13, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.CONCURRENT_TRANSACTIONS, 11, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.CONCURRENT_TRANSACTIONS, 12, ErrorCode.CONCURRENT_TRANSACTIONS),
        (ErrorCode.TRANSACTION_ABORTABLE, 10, ErrorCode.INVALID_TXN_STATE),
        (ErrorCode.TRANSACTION_ABORTABLE, 11, ErrorCode.TRANSACTION_ABORTABLE),
    ],
)
def test_a_verdict_is_told_in_the_words_of_the_version(
    verdict: ErrorCode, version: int, told: ErrorCode
) -> None:
    assert in_words_of(verdict, version) is told
