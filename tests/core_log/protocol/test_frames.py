"""Headers are found in every frame, whatever the version, and answers find their questions."""

import pytest

from headwater.core_log.foundation.errors import DecodeError
from headwater.core_log.protocol.frames import (
    RequestHeader,
    encode_request,
    encode_response,
    read_request_header,
    read_response_header,
    response_header,
)
from headwater.core_log.protocol.message import decode
from headwater.core_log.protocol.messages.api_versions import (
    ApiVersionsRequest,
    ApiVersionsResponse,
)
from headwater.core_log.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from headwater.core_log.protocol.messages.offset_delete import OffsetDeleteRequest

HEARTBEAT = HeartbeatRequest(group_id="shop", generation_id=3, member_id="m")


@pytest.mark.parametrize("version", [3, 4])
@pytest.mark.parametrize("client_id", ["rdkafka", "", None])
def test_a_request_is_read_as_it_was_sent(version: int, client_id: str | None) -> None:
    frame = memoryview(encode_request(HEARTBEAT, version, 77, client_id))
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4

    header = read_request_header(frame[4:])

    assert header[:4] == (12, version, 77, client_id)
    assert decode(HeartbeatRequest, frame[4:], version, header.body_position) == HEARTBEAT


def test_the_client_id_is_never_compact() -> None:
    frame = encode_request(ApiVersionsRequest(client_software_name="x"), 3, 1, "abc")

    assert frame[4:].startswith(b"\0\x12\0\3\0\0\0\1\0\3abc\0")


@pytest.mark.parametrize("version", [3, 4])
def test_a_response_is_read_as_it_was_sent(version: int) -> None:
    response = HeartbeatResponse(error_code=27)
    frame = memoryview(encode_response(response, 12, version, 77))
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4

    correlation_id, position = read_response_header(frame[4:], 12, version)

    assert correlation_id == 77
    assert decode(HeartbeatResponse, frame[4:], version, position) == response


def test_flexible_versions_have_tags_in_their_headers() -> None:
    assert response_header(12, 3, 7) == b"\0\0\0\7"
    assert response_header(12, 4, 7) == b"\0\0\0\7\0"


@pytest.mark.parametrize("version", range(5))
def test_the_answer_to_api_versions_never_has_tags_in_its_header(version: int) -> None:
    assert response_header(18, version, 7) == b"\0\0\0\7"
    frame = memoryview(encode_response(ApiVersionsResponse(), 18, version, 7))
    assert read_response_header(frame[4:], 18, version) == (7, 4)


def test_an_api_without_flexible_versions_never_has_tags_in_its_headers() -> None:
    frame = encode_request(OffsetDeleteRequest(group_id="shop"), 0, 7, "c")

    assert frame[4:].startswith(b"\0\x2f\0\0\0\0\0\7\0\1c\0\4shop")
    assert response_header(47, 0, 7) == b"\0\0\0\7"


def test_tags_of_a_newer_client_in_the_header_are_passed_over() -> None:
    head = b"\0\x0c\0\4\0\0\0\7\0\1c"

    header = read_request_header(memoryview(head + b"\1\x09\2xy" + b"body"))

    assert header == RequestHeader(12, 4, 7, "c", body_position=len(head) + 5)


def test_the_version_asked_for_is_known_even_when_it_is_not_served() -> None:
    header = read_request_header(memoryview(b"\0\x12\0\x63\0\0\0\7\0\1c\0"))
    assert (header.api_key, header.api_version) == (18, 99)


def test_a_header_of_an_unknown_api_is_still_read() -> None:
    header = read_request_header(memoryview(b"\x7f\0\0\0\0\0\0\7\xff\xff"))
    assert header == RequestHeader(0x7F00, 0, 7, None, body_position=10)


def test_a_header_cut_short_anywhere_is_refused() -> None:
    head = b"\0\x0c\0\4\0\0\0\7\0\1c\1\x09\2xy"
    for size in range(len(head)):
        with pytest.raises(DecodeError):
            read_request_header(memoryview(head)[:size])
    for size in range(4):
        with pytest.raises(DecodeError):
            read_response_header(memoryview(bytes(size)), 12, 3)
