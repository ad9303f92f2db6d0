"""A message is declared once, and each version says what it can and refuses what it cannot."""

from typing import Any

import pytest

from headwater.core_log.foundation.errors import DecodeError
from headwater.core_log.protocol.message import UnsupportedByVersion, decode, encode, response_type
from headwater.core_log.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    NodeEndpoint,
    PartitionData,
    ReplicaState,
)
from headwater.core_log.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from headwater.core_log.protocol.messages.join_group import JoinGroupRequest
from headwater.core_log.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from headwater.core_log.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from headwater.core_log.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest


def again(message: Any, version: int) -> Any:
    return decode(type(message), memoryview(encode(message, version)), version)


def test_a_field_younger_than_the_version_is_refused() -> None:
    heartbeat = HeartbeatRequest(group_id="shop", group_instance_id="static-1")

    with pytest.raises(UnsupportedByVersion, match="group_instance_id"):
        encode(heartbeat, 2)
    assert again(heartbeat, 3) == heartbeat


def test_a_field_older_than_the_version_is_refused() -> None:
    fetch = FetchRequest(replica_id=2)

    with pytest.raises(UnsupportedByVersion, match="replica_id"):
        encode(fetch, 15)
    assert again(fetch, 14) == fetch


def test_an_ignorable_field_is_dropped_by_a_version_without_it() -> None:
    response = HeartbeatResponse(throttle_time_ms=100, error_code=27)

    assert again(response, 0) == HeartbeatResponse(error_code=27)
    assert again(response, 1) == response


def test_a_field_left_at_its_default_is_no_obstacle() -> None:
    assert again(TxnOffsetCommitRequest(group_id="shop"), 0).generation_id == -1


def test_empty_sequences_are_alike() -> None:
    assert encode(FetchRequest(forgotten_topics_data=[]), 4) == encode(FetchRequest(), 4)


def test_arrays_are_taken_as_any_sequence_and_given_as_tuples() -> None:
    request = MetadataRequest(topics=[MetadataRequestTopic(name="orders")])

    assert again(request, 8).topics == (MetadataRequestTopic(name="orders"),)


def test_null_is_refused_by_a_version_that_cannot_send_it() -> None:
    every_topic = MetadataRequest(topics=None)

    with pytest.raises(UnsupportedByVersion, match="cannot send null"):
        encode(every_topic, 0)
    assert again(every_topic, 1) == every_topic


def test_null_is_refused_from_a_peer_where_a_value_must_be() -> None:
    with pytest.raises(DecodeError, match="length does not fit"):
        decode(MetadataRequest, memoryview(b"\xff\xff\xff\xff"), 0)
    with pytest.raises(DecodeError, match="length does not fit"):
        decode(HeartbeatRequest, memoryview(b"\xff\xff\0\0\0\1\0\0"), 0)


def test_a_version_that_was_never_declared_is_refused() -> None:
    with pytest.raises(UnsupportedByVersion, match="the version is unknown"):
        encode(HeartbeatRequest(), 5)
    with pytest.raises(DecodeError, match="the version is unknown"):
        decode(ProduceRequest, memoryview(bytes(100)), 2)


def test_tagged_fields_are_sent_only_when_they_differ_from_their_default() -> None:
    default, tagged = FetchResponse(), FetchResponse(node_endpoints=(NodeEndpoint(node_id=1),))

    assert len(encode(default, 16)) < len(encode(tagged, 16))
    assert encode(default, 16).endswith(b"\0")
    assert again(tagged, 16) == tagged


def test_a_tagged_struct_keeps_its_own_defaults_when_absent() -> None:
    assert again(FetchRequest(), 18).replica_state == ReplicaState(replica_id=-1)


def test_tags_of_a_newer_peer_are_passed_over() -> None:
    known = encode(HeartbeatResponse(error_code=27), 4)
    with_tags = known[:-1] + b"\2\x05\3abc\x90\1\0"  # tags 5 and 144, of three bytes and none

    assert decode(HeartbeatResponse, memoryview(with_tags), 4) == HeartbeatResponse(error_code=27)


def test_a_tagged_field_must_be_as_long_as_it_says() -> None:
    honest = encode(FetchRequest(cluster_id="abc"), 12)
    assert honest.endswith(b"\1\0\4\4abc")

    with pytest.raises(DecodeError, match="not of the size declared"):
        decode(FetchRequest, memoryview(honest[:-5] + b"\5\4abcd"), 12)


def test_bytes_after_a_message_are_left_alone() -> None:
    heartbeat = HeartbeatRequest(group_id="shop", generation_id=3, member_id="m")

    frame = memoryview(b"head" + encode(heartbeat, 4) + b"tail")
    assert decode(HeartbeatRequest, frame, 4, position=4) == heartbeat


def test_records_are_a_view_of_the_frame_they_came_in() -> None:
    batch = memoryview(b"one record batch")
    partition = PartitionProduceData(index=0, records=batch)
    request = ProduceRequest(topic_data=[TopicProduceData(name="t", partition_data=[partition])])
    frame = memoryview(encode(request, 9))

    records = decode(ProduceRequest, frame, 9).topic_data[0].partition_data[0].records

    assert records == batch
    assert records is not None and records.obj is frame.obj


def test_an_error_response_needs_nothing_but_its_code() -> None:
    topic = FetchableTopicResponse(partitions=[PartitionData(partition_index=1, error_code=3)])
    read = again(FetchResponse(responses=[topic]), 4).responses[0].partitions[0]

    assert read == PartitionData(partition_index=1, error_code=3)


def test_text_that_is_not_utf_8_is_refused() -> None:
    with pytest.raises(DecodeError, match="HeartbeatRequest"):
        decode(HeartbeatRequest, memoryview(b"\0\1\xff\0\0\0\1\0\0"), 0)


@pytest.mark.parametrize("version", [5, 6])
def test_a_string_longer_than_kafka_allows_is_refused_both_ways(version: int) -> None:
    with pytest.raises(ValueError, match="Kafka allows 32767"):
        encode(JoinGroupRequest(group_id="x" * 32768), version)

    longest = JoinGroupRequest(group_id="x" * 32767)
    assert again(longest, version) == longest


def test_a_compact_string_longer_than_kafka_allows_is_refused() -> None:
    data = b"\x81\x80\x02" + b"x" * 32768
    with pytest.raises(DecodeError, match="longer than Kafka allows"):
        decode(HeartbeatRequest, memoryview(data), 4)


def test_a_name_may_be_null_where_an_id_stands_for_it() -> None:
    by_id = MetadataResponse(topics=[MetadataResponseTopic(name=None)])

    with pytest.raises(UnsupportedByVersion, match="cannot send null"):
        encode(by_id, 11)
    assert again(by_id, 12).topics[0].name is None


def test_a_request_knows_what_answers_it() -> None:
    assert response_type(HeartbeatRequest) is HeartbeatResponse
