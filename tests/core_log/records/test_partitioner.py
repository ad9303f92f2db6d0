"""A key goes to the partition in which every Kafka client looks for it."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.partitioner.default import murmur2 as reference

from headwater.core_log.records.murmur2 import murmur2, partition_of
from headwater.core_log.records.partitioner import murmur2_column, partitions_of

KEYS = st.lists(st.none() | st.binary(max_size=40) | st.binary(max_size=5), max_size=40)


@given(KEYS, st.integers(0, 5))
def test_a_column_hashes_as_other_clients_hash_each_key(
    keys: list[bytes | None], skipped: int
) -> None:
    column = pa.array([b"before"] * skipped + keys, pa.binary())[skipped:]

    expected = [reference(key or b"") & 0xFFFFFFFF for key in keys]

    assert murmur2_column(column).tolist() == expected
    assert [murmur2(key or b"") for key in keys] == expected


# Known to be what Java's Utils.murmur2 returns.
@pytest.mark.parametrize(
    ("key", "hashed"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_hashes_are_those_of_the_java_client(key: bytes, hashed: int) -> None:
    assert murmur2(key) == hashed & 0xFFFFFFFF
    assert murmur2_column(pa.array([key], pa.binary())).tolist() == [hashed & 0xFFFFFFFF]


@given(KEYS, st.integers(1, 100))
def test_a_column_is_placed_as_its_keys_are(keys: list[bytes | None], count: int) -> None:
    placed = partitions_of(pa.array(keys, pa.binary()), count).tolist()

    assert placed == [-1 if key is None else partition_of(key, count) for key in keys]
