"""Bytes that break the protocol raise DecodeError, whatever they say, and never cost memory."""

import tracemalloc
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.core_log.foundation.errors import DecodeError
from headwater.core_log.protocol.frames import (
    FLEXIBLE_FROM,
    read_request_header,
    read_response_header,
)
from headwater.core_log.protocol.message import decode, encode
from tests.core_log.protocol.samples import (
    EVERY_VERSION,
    MESSAGES,
    RECORDS,
    full,
    is_flexible,
    versions_of,
)

CASES = [pytest.param(*case, id=f"{case[0].__name__}-{case[1]}") for case in EVERY_VERSION]
ALLOCATED_BYTES_MAX = 1 << 20
HUGE = {
    "int16": b"\x7f\xff",
    "int32": b"\x7f\xff\xff\xff",
    "varint": b"\xff\xff\xff\xff\x07",
    "negative": b"\xff\xff\xff\xfe",
}


def both_encodings(message: Any) -> Iterator[int]:
    """The newest version of each: lengths of fixed size, and compact ones."""
    plain = [each for each in versions_of(message) if not is_flexible(message, each)]
    return iter({*plain[-1:], versions_of(message)[-1]})


BOTH_ENCODINGS = [
    pytest.param(message, version, id=f"{message.__name__}-{version}")
    for message in MESSAGES + RECORDS
    for version in both_encodings(message)
]


def decode_or_refuse(message: Any, data: bytes | bytearray, version: int) -> None:
    try:
        decode(message, memoryview(data), version)
    except DecodeError:
        return


@pytest.mark.parametrize(("message", "version"), CASES)
def test_a_message_cut_short_anywhere_is_refused(message: Any, version: int) -> None:
    whole = encode(full(message, version), version)

    for size in range(len(whole)):
        with pytest.raises(DecodeError):
            decode(message, memoryview(whole)[:size], version)


@pytest.mark.parametrize(("message", "version"), BOTH_ENCODINGS)
def test_no_damaged_byte_does_more_than_break_its_message(message: Any, version: int) -> None:
    whole = encode(full(message, version), version)

    for position in range(len(whole)):
        for value in (0x00, 0x7F, 0x80, 0xFF):
            damaged = bytearray(whole)
            damaged[position] = value
            decode_or_refuse(message, damaged, version)


@pytest.mark.parametrize(("message", "version"), BOTH_ENCODINGS)
def test_a_length_that_promises_the_moon_costs_nothing(message: Any, version: int) -> None:
    whole = encode(full(message, version), version)
    decode(message, memoryview(whole), version)

    tracemalloc.start()
    try:
        for position in range(len(whole)):
            for huge in HUGE.values():
                lying = whole[:position] + huge + whole[position + len(huge) :]
                decode_or_refuse(message, lying, version)
        assert tracemalloc.get_traced_memory()[1] < ALLOCATED_BYTES_MAX
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(("message", "version"), BOTH_ENCODINGS)
@settings(max_examples=10)
@given(st.binary(max_size=200))
def test_noise_is_read_or_refused(message: Any, version: int, noise: bytes) -> None:
    decode_or_refuse(message, noise, version)


@given(st.binary(max_size=40), st.sampled_from(sorted(FLEXIBLE_FROM)))
def test_noise_for_a_header_is_read_or_refused(noise: bytes, api_key: int) -> None:
    frame = memoryview(api_key.to_bytes(2, "big") + noise)
    for read in (read_request_header, lambda frame: read_response_header(frame, api_key, 99)):
        try:
            read(frame)
        except DecodeError:
            continue
