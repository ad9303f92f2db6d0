"""A key goes where Kafka's own clients send it."""

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st
from kafka.partitioner.default import murmur2 as kafka_murmur2

from core_log.partitioning import NO_KEY, murmur2, partitions_of

keys = st.lists(st.binary(max_size=20) | st.binary(min_size=100, max_size=120), max_size=20)


@given(keys)
def test_the_hash_is_the_one_of_other_clients(keys: list[bytes]) -> None:
    found = murmur2(pa.array(keys, pa.binary()))

    assert found.tolist() == [kafka_murmur2(key) & 0xFFFFFFFF for key in keys]


@given(keys, st.integers(0, 5), st.integers(1, 50))
def test_a_slice_of_a_column_is_partitioned_like_the_whole(
    keys: list[bytes], start: int, count: int
) -> None:
    column = pa.array(keys, pa.binary())

    assert (
        partitions_of(column[start:], count).tolist()
        == (partitions_of(column, count).tolist()[start:])
    )


def test_a_record_without_a_key_may_go_anywhere() -> None:
    found = partitions_of(pa.array([b"a", None, b""], pa.binary()), 7)

    assert found[1] == NO_KEY
    assert min(found[0], found[2]) >= 0
