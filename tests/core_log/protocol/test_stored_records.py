"""Records of Kafka's internal topics are, byte for byte, what Kafka 4.3 writes and reads there."""

from typing import Any
from uuid import UUID

import pytest

from headwater.core_log.foundation.errors import DecodeError
from headwater.core_log.protocol.message import decode_record, encode_record
from headwater.core_log.protocol.messages.consumer_protocol import ConsumerProtocolSubscription
from headwater.core_log.protocol.messages.control_records import (
    ControlRecordKey,
    ControlRecordType,
    EndTxnMarker,
)
from headwater.core_log.protocol.messages.group_records import (
    GROUP_METADATA_KEY,
    OFFSET_COMMIT_KEY,
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
    OffsetCommitKey,
    OffsetCommitValue,
    decode_group_key,
)
from headwater.core_log.protocol.messages.transaction_records import (
    PartitionsSchema,
    TransactionLogKey,
    TransactionLogValue,
)

GROUP = GroupMetadataValue(
    protocol_type="consumer",
    generation=4,
    protocol="range",
    leader=None,
    current_state_timestamp=99,
    members=(
        MemberMetadata(
            member_id="m-1",
            group_instance_id="i",
            client_id="c",
            client_host="/h",
            rebalance_timeout=6,
            session_timeout=7,
            subscription=b"\1\2",
            assignment=b"\3",
        ),
    ),
)
OFFSET = OffsetCommitValue(
    offset=42, leader_epoch=5, metadata="m", commit_timestamp=1000, topic_id=UUID(int=2**64 + 2)
)
TRANSACTION = TransactionLogValue(
    producer_id=9,
    previous_producer_id=8,
    next_producer_id=10,
    producer_epoch=2,
    next_producer_epoch=1,
    transaction_timeout_ms=60_000,
    transaction_status=1,
    transaction_partitions=(PartitionsSchema(topic="a", partition_ids=(0, 2)),),
    transaction_last_update_timestamp_ms=77,
    transaction_start_timestamp_ms=66,
    client_transaction_version=2,
)
OLD_TRANSACTION = TransactionLogValue(
    producer_id=9,
    producer_epoch=2,
    transaction_timeout_ms=60_000,
    transaction_status=1,
    transaction_partitions=None,
    transaction_last_update_timestamp_ms=77,
    transaction_start_timestamp_ms=66,
)

WRITTEN_BY_KAFKA = [
    (
        OffsetCommitKey(group="shop", topic="orders", partition=3),
        OFFSET_COMMIT_KEY,
        "0001000473686f7000066f726465727300000003",
    ),
    (GroupMetadataKey(group="shop"), GROUP_METADATA_KEY, "0002000473686f70"),
    (OFFSET, 0, "0000000000000000002a00016d00000000000003e8"),
    (OFFSET, 1, "0001000000000000002a00016d00000000000003e8ffffffffffffffff"),
    (OFFSET, 2, "0002000000000000002a00016d00000000000003e8"),
    (OFFSET, 3, "0003000000000000002a0000000500016d00000000000003e8"),
    (
        OFFSET,
        4,
        "0004000000000000002a00000005026d00000000000003e801001000000000000000010000000000000002",
    ),
    (
        GROUP,
        0,
        "00000008636f6e73756d657200000004000572616e6765ffff0000000100036d2d3100016300022f68"
        "000000070000000201020000000103",
    ),
    (
        GROUP,
        1,
        "00010008636f6e73756d657200000004000572616e6765ffff0000000100036d2d3100016300022f68"
        "00000006000000070000000201020000000103",
    ),
    (
        GROUP,
        2,
        "00020008636f6e73756d657200000004000572616e6765ffff000000000000006300000001"
        "00036d2d3100016300022f6800000006000000070000000201020000000103",
    ),
    (
        GROUP,
        3,
        "00030008636f6e73756d657200000004000572616e6765ffff000000000000006300000001"
        "00036d2d3100016900016300022f6800000006000000070000000201020000000103",
    ),
    (
        GROUP,
        4,
        "000409636f6e73756d6572000000040672616e6765000000000000000063"
        "02046d2d3102690263032f68000000060000000703010202030000",
    ),
    (TransactionLogKey(transactional_id="t"), 0, "0000000174"),
    (
        OLD_TRANSACTION,
        0,
        "0000000000000000000900020000ea6001ffffffff000000000000004d0000000000000042",
    ),
    (
        TRANSACTION,
        1,
        "0001000000000000000900020000ea6001020261030000000000000002"
        "00000000000000004d0000000000000042"
        "04000800000000000000080108000000000000000a0202000203020001",
    ),
    (ControlRecordKey(type=ControlRecordType.COMMIT), 0, "00000001"),
    (EndTxnMarker(coordinator_epoch=13), 0, "00000000000d"),
]
CASES = [pytest.param(*case, id=f"{type(case[0]).__name__}-{case[1]}") for case in WRITTEN_BY_KAFKA]


@pytest.mark.parametrize(("record", "version", "kafka"), CASES)
def test_our_bytes_are_those_kafka_writes(record: Any, version: int, kafka: str) -> None:
    assert encode_record(record, version).hex() == kafka


@pytest.mark.parametrize(("record", "version", "kafka"), CASES)
def test_records_written_by_kafka_are_read(record: Any, version: int, kafka: str) -> None:
    read = decode_record(type(record), bytes.fromhex(kafka))
    assert encode_record(read, version).hex() == kafka


def test_the_number_before_a_group_key_tells_its_kind() -> None:
    offset = OffsetCommitKey(group="shop", topic="orders", partition=3)
    group = GroupMetadataKey(group="shop")

    assert decode_group_key(encode_record(offset, OFFSET_COMMIT_KEY)) == offset
    assert decode_group_key(encode_record(offset, 0)) == offset
    assert decode_group_key(encode_record(group, GROUP_METADATA_KEY)) == group


def test_keys_of_later_group_protocols_are_passed_over() -> None:
    assert decode_group_key(b"\0\3\0\4shop") is None


def test_a_member_that_speaks_a_later_consumer_protocol_is_understood() -> None:
    subscription = ConsumerProtocolSubscription(topics=("orders",), rack_id="r")
    later = b"\0\7" + encode_record(subscription, 3)[2:] + b"something new"

    assert decode_record(ConsumerProtocolSubscription, later) == subscription


def test_a_stored_value_of_a_later_version_is_not_guessed_at() -> None:
    with pytest.raises(DecodeError, match="the version is unknown"):
        decode_record(OffsetCommitValue, b"\0\5" + bytes(40))


@pytest.mark.parametrize("data", [b"", b"\0"])
def test_a_record_too_short_for_its_version_is_an_error(data: bytes) -> None:
    with pytest.raises(DecodeError, match="record has no version"):
        decode_group_key(data)
