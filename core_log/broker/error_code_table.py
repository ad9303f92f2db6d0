"""Which Kafka error code stands for which of our errors: one table."""

from headwater.core_log.broker.batch_contents import InvalidRecord
from headwater.core_log.broker.batch_validation import (
    InternalTopic,
    InvalidTimestamp,
    UnsupportedCompression,
)
from headwater.core_log.foundation.errors import (
    BatchRejected,
    BatchTooLarge,
    CorruptBatch,
    CorruptLog,
    HeadwaterError,
    InvalidProducerEpoch,
    InvalidTransactionState,
    OffsetOutOfRange,
    OutOfOrderSequence,
    StorageFailed,
)
from headwater.core_log.protocol.error_codes import ErrorCode

CODES: dict[type[HeadwaterError], ErrorCode] = {
    CorruptBatch: ErrorCode.CORRUPT_MESSAGE,
    BatchTooLarge: ErrorCode.MESSAGE_TOO_LARGE,
    InvalidRecord: ErrorCode.INVALID_RECORD,
    InvalidTimestamp: ErrorCode.INVALID_TIMESTAMP,
    UnsupportedCompression: ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
    InternalTopic: ErrorCode.INVALID_TOPIC_EXCEPTION,
    OutOfOrderSequence: ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    InvalidProducerEpoch: ErrorCode.INVALID_PRODUCER_EPOCH,
    InvalidTransactionState: ErrorCode.INVALID_TXN_STATE,
    BatchRejected: ErrorCode.INVALID_RECORD,
    StorageFailed: ErrorCode.KAFKA_STORAGE_ERROR,
    CorruptLog: ErrorCode.KAFKA_STORAGE_ERROR,
    OffsetOutOfRange: ErrorCode.OFFSET_OUT_OF_RANGE,
}


def code_of(error: HeadwaterError) -> ErrorCode:
    """The code of the nearest ancestor in the table; what is not there is a server's failure."""
    for kind in type(error).__mro__:
        if kind in CODES:
            return CODES[kind]
    return ErrorCode.UNKNOWN_SERVER_ERROR
