"""Whatever a version can say survives the wire, and Kafka's other clients read the same from it."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.core_log.protocol.message import decode, encode
from tests.core_log.protocol import kafka_python
from tests.core_log.protocol.samples import (
    EVERY_VERSION,
    RECORDS,
    full,
    instances,
    is_flexible,
)

CASES = [pytest.param(*case, id=f"{case[0].__name__}-{case[1]}") for case in EVERY_VERSION]
KNOWN_TO_KAFKA_PYTHON = [
    pytest.param(*case, id=f"{case[0].__name__}-{case[1]}")
    for case in EVERY_VERSION
    if case[0] not in RECORDS or case[0].__name__.startswith("ConsumerProtocol")
]


@pytest.mark.parametrize(("message", "version"), CASES)
@settings(max_examples=3)
@given(st.data())
def test_decoding_gives_back_what_was_encoded(
    message: Any, version: int, data: st.DataObject
) -> None:
    instance = data.draw(instances(message, version))
    assert decode(message, memoryview(encode(instance, version)), version) == instance


@pytest.mark.parametrize(("message", "version"), CASES)
def test_every_field_of_a_version_survives_the_wire(message: Any, version: int) -> None:
    instance = full(message, version)
    assert decode(message, memoryview(encode(instance, version)), version) == instance


@pytest.mark.parametrize(("message", "version"), KNOWN_TO_KAFKA_PYTHON)
@settings(max_examples=3)
@given(st.data())
def test_our_bytes_are_those_of_kafka_python(
    message: Any, version: int, data: st.DataObject
) -> None:
    instance = data.draw(instances(message, version))
    flexible = is_flexible(message, version)
    encoded = encode(instance, version)
    assert encoded == kafka_python.encode(instance, version, is_flexible=flexible)
    understood = kafka_python.decode(message.__name__, encoded, version, is_flexible=flexible)
    assert understood == (kafka_python.as_dict(instance, version), b"")
