"""A name's partition is the one Kafka gives it, so that its logs can be taken over."""

import pytest

from headwater.core_log.groups.group_coordinator import partition_of

LARGE = 1 << 31


@pytest.mark.parametrize(
    ("name", "java_hash"),
    [
        ("", 0),
        ("abc", 96_354),
        ("console-consumer-12345", 158_455_506),
        ("Grüße", 69_215_351),
        ("polygenelubricants", 0),  # Java's smallest integer, which has no absolute value
    ],
)
def test_names_hash_as_in_java(name: str, java_hash: int) -> None:
    assert partition_of(name, LARGE) == java_hash


def test_every_name_has_a_partition() -> None:
    placed = {partition_of(f"group-{number}", 16) for number in range(500)}

    assert placed == set(range(16))
