"""Maps a broker's error code to a retry or to one of our own errors."""

from collections.abc import Mapping

from headwater.core_log.client.retry_policy import DiskRejectsWrites, UnknownTopic
from headwater.core_log.foundation.errors import (
    BatchRejected,
    BatchTooLarge,
    CorruptBatch,
    Fenced,
    HeadwaterError,
    InvalidTransactionState,
    LogRejected,
    LogUnavailable,
    OutOfOrderSequence,
    PositionLost,
)
from headwater.core_log.links.connection import RetriableFailure
from headwater.core_log.protocol.error_codes import ErrorCode

E = ErrorCode

UNKNOWN_TOPIC = frozenset({E.UNKNOWN_TOPIC_OR_PARTITION, E.UNKNOWN_TOPIC_ID})

STALE_LEADER = UNKNOWN_TOPIC | {
    E.NOT_LEADER_OR_FOLLOWER,
    E.LEADER_NOT_AVAILABLE,
    E.FENCED_LEADER_EPOCH,
    E.UNKNOWN_LEADER_EPOCH,
    E.KAFKA_STORAGE_ERROR,
    E.REPLICA_NOT_AVAILABLE,
    E.INCONSISTENT_TOPIC_ID,
}
"""After these codes the topic's leaders are requested again."""

STALE_COORDINATOR = frozenset({E.NOT_COORDINATOR, E.COORDINATOR_NOT_AVAILABLE})
"""After these codes the coordinator is looked up again."""

_KINDS: Mapping[ErrorCode, tuple[type[HeadwaterError], str, str]] = {
    E.PRODUCER_FENCED: (Fenced, "a newer writer of this name has taken over", ""),
    E.INVALID_PRODUCER_EPOCH: (Fenced, "a newer writer of this name has taken over", ""),
    E.OUT_OF_ORDER_SEQUENCE_NUMBER: (
        OutOfOrderSequence,
        "the log misses batches that this writer sent earlier",
        "open a new writer and read its position again",
    ),
    E.UNKNOWN_PRODUCER_ID: (
        OutOfOrderSequence,
        "the log no longer knows this writer",
        "open a new writer and read its position again",
    ),
    E.INVALID_PRODUCER_ID_MAPPING: (
        LogUnavailable,
        "the log has forgotten this writer's name",
        "open the writer anew; transactional.id.expiration.ms says how long names are kept",
    ),
    E.TRANSACTION_ABORTABLE: (LogUnavailable, "the transaction must be aborted and repeated", ""),
    E.INVALID_TXN_STATE: (InvalidTransactionState, "the transaction is not open here", ""),
    E.MESSAGE_TOO_LARGE: (
        BatchTooLarge,
        "batch is larger than the topic takes",
        "raise max.message.bytes of the topic, or write smaller batches",
    ),
    E.RECORD_LIST_TOO_LARGE: (
        BatchTooLarge,
        "batch is larger than a segment of the topic",
        "raise segment.bytes of the topic, or write smaller batches",
    ),
    E.CORRUPT_MESSAGE: (CorruptBatch, "the log found the batch damaged", ""),
    E.INVALID_RECORD: (BatchRejected, "the topic does not take such records", ""),
    E.INVALID_TIMESTAMP: (BatchRejected, "the topic does not take such timestamps", ""),
    E.UNSUPPORTED_COMPRESSION_TYPE: (BatchRejected, "the log does not know the compression", ""),
    E.OFFSET_OUT_OF_RANGE: (PositionLost, "the log does not have this offset", ""),
}


def check(code: int, *, message: str | None = None, **facts: object) -> None:
    """Returns if the broker reports success; raises its error otherwise."""
    if code != E.NONE:
        raise refusal(code, message=message, **facts)


def refusal(code: int, *, message: str | None = None, **facts: object) -> Exception:
    """Returns TryAgain if a retry can succeed, else the error for the caller."""
    known = ErrorCode(code)
    if known in UNKNOWN_TOPIC:
        return UnknownTopic("topic or partition does not exist", **facts)
    if known == E.KAFKA_STORAGE_ERROR:
        return DiskRejectsWrites(message or known.meaning, **facts)
    if known in _KINDS:
        kind, problem, hint = _KINDS[known]
        return kind(problem, hint=hint, **facts)
    if known.is_retriable or known in STALE_LEADER:
        return RetriableFailure(known.meaning, error=known.name, **facts)
    return LogRejected(message or known.meaning, hint="", **{"error": known.name, **facts})
