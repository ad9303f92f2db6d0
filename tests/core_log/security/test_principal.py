"""Principals travel between brokers in Kafka's own bytes."""

import pytest

from headwater.core_log.foundation.errors import DecodeError
from headwater.core_log.security.principal import (
    ANONYMOUS,
    Principal,
    decode_principal,
    encode_principal,
    parse_principal,
)

ALICE = b"\0\0\5User\6alice\0\0"
"""Version, compact strings, not authenticated by a token, no tagged fields."""


def test_a_principal_travels_in_the_bytes_of_kafkas_default_principal_data() -> None:
    assert encode_principal(Principal("alice")) == ALICE
    assert decode_principal(ALICE) == Principal("alice")


def test_an_envelope_of_an_earlier_version_speaks_for_nobody() -> None:
    assert decode_principal(None) == ANONYMOUS


@pytest.mark.parametrize("size", range(len(ALICE)))
def test_a_cut_principal_is_not_read(size: int) -> None:
    with pytest.raises(DecodeError):
        decode_principal(ALICE[:size])


def test_a_principal_without_a_name_is_not_read() -> None:
    with pytest.raises(DecodeError, match="no name"):
        decode_principal(b"\0\0\5User\1\0\0")


def test_a_principal_is_written_as_kafka_writes_it() -> None:
    certificate = parse_principal("User:CN=a,O=b:c")

    assert certificate == Principal("CN=a,O=b:c")
    assert str(certificate) == "User:CN=a,O=b:c"


@pytest.mark.parametrize("text", ["", "alice", "User:", ":alice", ":"])
def test_other_texts_are_not_principals(text: str) -> None:
    with pytest.raises(ValueError, match="principalType:principalName"):
        parse_principal(text)
