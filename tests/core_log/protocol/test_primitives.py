"""Wire types keep their values, take the bytes Kafka gives them, and refuse what overflows."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.core_log.foundation.errors import DecodeError
from headwater.core_log.protocol.primitives import (
    COMPACT,
    LONG,
    SHORT,
    Codec,
    WireReader,
    array_codec,
    nullable_struct_codec,
    number_codec,
    string_codec,
    write_varint,
)


def written(codec: Codec, value: object) -> bytes:
    out = bytearray()
    codec.write(out, value)
    return bytes(out)


def read(codec: Codec, data: bytes) -> tuple[object, int]:
    """Returns the value, and the position behind it."""
    reader = WireReader(memoryview(data))
    return codec.read(reader), reader.position


@given(st.integers(0, 2**31 - 1))
def test_a_varint_keeps_its_value(value: int) -> None:
    out = bytearray()
    write_varint(out, value)
    reader = WireReader(memoryview(out))
    assert reader.read_varint() == value
    assert reader.position == len(out)


@pytest.mark.parametrize(
    ("value", "encoded"),
    [(0, "00"), (127, "7f"), (128, "8001"), (300, "ac02"), (2**31 - 1, "ffffffff07")],
)
def test_a_varint_is_seven_bits_a_byte_lowest_first(value: int, encoded: str) -> None:
    out = bytearray()
    write_varint(out, value)
    assert out.hex() == encoded


@pytest.mark.parametrize("encoded", ["8080808008", "ffffffffff01", "808080808000"])
def test_a_varint_beyond_31_bits_is_refused(encoded: str) -> None:
    with pytest.raises(DecodeError, match="larger than 31 bits"):
        WireReader(memoryview(bytes.fromhex(encoded))).read_varint()


def test_strings_tell_their_length_in_two_ways() -> None:
    assert written(string_codec(SHORT, nullable=False), "né") == b"\0\3n\xc3\xa9"
    assert written(string_codec(COMPACT, nullable=False), "né") == b"\4n\xc3\xa9"
    assert written(string_codec(SHORT, nullable=True), None) == b"\xff\xff"
    assert written(string_codec(COMPACT, nullable=True), None) == b"\0"


def test_an_array_may_not_declare_more_than_fits_into_what_is_left() -> None:
    array = array_codec(string_codec(SHORT, nullable=False), LONG, nullable=False)
    three_empty_strings = b"\0\0\0\3" + bytes(6)

    assert read(array, three_empty_strings) == (("", "", ""), 10)
    with pytest.raises(DecodeError, match="length does not fit"):
        read(array, b"\0\0\0\4" + bytes(6))


def test_a_struct_that_may_be_absent_says_whether_it_is_there() -> None:
    codec = nullable_struct_codec(number_codec("i"))

    assert written(codec, None) == b"\xff"
    assert written(codec, 5) == b"\1\0\0\0\5"
    assert read(codec, b"\xff") == (None, 1)
    assert read(codec, b"\1\0\0\0\5") == (5, 5)
