"""What coordinators and the metadata keep in records of their own, however damaged."""

from collections.abc import Callable

from headwater.core_log.foundation.endpoint import decode_endpoint
from headwater.core_log.foundation.errors import HeadwaterError
from headwater.core_log.groups import group_log, transaction_log
from headwater.core_log.model.log import TopicPartition
from headwater.core_log.protocol import message
from headwater.core_log.protocol.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
)
from headwater.core_log.protocol.messages.group_records import decode_group_key
from headwater.core_log.records.record_codec import PlainRecord, decode_marker
from headwater.core_log.replication.metadata_records import decode_record
from headwater.core_log.storage.producer_snapshot import decode_snapshot, encode_snapshot
from headwater.core_log.storage.producers import Producer

DECODERS: list[Callable[[bytes], object]] = [
    group_log.decode_offset,
    group_log.decode_group,
    decode_group_key,
    group_log.is_commit_marker,
    transaction_log.decode_key,
    transaction_log.decode_value,
    decode_record,
    decode_snapshot,
    decode_endpoint,
    lambda data: message.decode(ConsumerProtocolSubscription, memoryview(data)[2:], 1),
    lambda data: message.decode(ConsumerProtocolAssignment, memoryview(data)[2:], 1),
    lambda data: decode_marker(PlainRecord(data[:4], data[4:])),
]


def seeds() -> list[bytes]:
    contents = [
        group_log.encode_offset_key("g", TopicPartition("t", 0)),
        group_log.encode_group_key("g"),
        transaction_log.encode_key("t"),
        encode_snapshot([(7, Producer(1))]),
        b'{"type": "feature", "name": "x", "level": 1}',
        b'{"pid": 1, "kafka": "127.0.0.1:1"}',
    ]
    return [bytes([place]) + each for place, _ in enumerate(DECODERS) for each in contents]


class Target:
    """An answer, or an error of ours."""

    def __call__(self, data: bytes) -> None:
        if not data:
            return
        try:
            DECODERS[data[0] % len(DECODERS)](data[1:])
        except HeadwaterError:
            return
