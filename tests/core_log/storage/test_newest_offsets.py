"""The map of compaction is a dict from key to newest offset, in little memory and with bounds."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.core_log.storage.key_digests import (
    ENTRY_BYTES_MAX,
    KeyDigestRows,
    KeyDigests,
    NewestOffsets,
)

KEYS = st.lists(st.binary(max_size=20) | st.binary(min_size=250, max_size=262), max_size=60)


def digests_of(
    keys: list[bytes], *, gap: int = 0, digests: KeyDigests | None = None
) -> KeyDigestRows:
    """The keys lie one after another, with something else between them."""
    data = b"".join(key + b"\xff" * gap for key in keys)
    lengths = np.array([len(key) for key in keys], dtype=np.int64)
    starts = np.cumsum(lengths + gap) - lengths - gap
    return (digests or SEEDED).of(np.frombuffer(data, np.uint8), starts, lengths)


SEEDED = KeyDigests(b"the same in all.")


@given(KEYS, st.integers(0, 9))
def test_equal_keys_and_only_they_have_equal_digests(keys: list[bytes], gap: int) -> None:
    found = [tuple(digest) for digest in digests_of(keys, gap=gap).tolist()]

    assert [tuple(digest) for digest in digests_of(keys).tolist()] == found
    assert len(set(found)) == len(set(keys))


def test_every_run_draws_its_own_digests() -> None:
    first, second = (digests_of([b"key"], digests=KeyDigests()).tolist() for _ in range(2))

    assert first != second


def test_trailing_zeros_make_another_key() -> None:
    keys = [b"a" * size + b"\0" * zeros for size in range(9) for zeros in range(9)]

    assert len({tuple(digest) for digest in digests_of(keys).tolist()}) == len(set(keys))


@given(st.lists(st.lists(st.integers(0, 40), max_size=30), max_size=8))
def test_the_map_is_a_dict(rounds: list[list[int]]) -> None:
    newest, expected, offset = NewestOffsets(1000), dict[bytes, int](), 0
    for numbers in rounds:
        keys = [b"%d" % number for number in numbers]
        offsets = np.arange(offset, offset + len(keys))
        assert newest.put(digests_of(keys), offsets) == len(keys)
        expected |= dict(zip(keys, offsets.tolist(), strict=True))
        offset += len(keys)

    everything = [b"%d" % number for number in range(50)]
    assert newest.count == len(expected)
    assert newest.surviving().tolist() == sorted(expected.values())
    assert newest.knows(digests_of(everything)).tolist() == [key in expected for key in everything]


def test_a_full_map_says_how_far_it_came() -> None:
    newest = NewestOffsets(100)
    keys = [b"%d" % (number % 150) for number in range(400)]

    taken = newest.put(digests_of(keys), np.arange(400))

    assert taken == 100
    assert newest.surviving().tolist() == list(range(100))


@pytest.mark.slow
def test_memory_per_key_stays_within_its_bound_at_every_size() -> None:
    newest, block = NewestOffsets(200_000), 1000
    random = np.random.default_rng(1)
    for start in range(0, 200_000, block):
        newest.put(
            random.integers(0, 1 << 64, (block, 2), np.uint64), np.arange(start, start + block)
        )

        assert newest.size_bytes <= ENTRY_BYTES_MAX * max(newest.count, block)
