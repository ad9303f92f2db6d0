"""Compaction begins where Kafka would begin, and never beyond what is closed, decided and old."""

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.core_log.storage.compaction import (
    Cleanable,
    SegmentFacts,
    cleanable,
    group_segments,
)
from headwater.core_log.storage.log_config import LogConfig

NOW_MS = 1_000_000
CONFIG = LogConfig(cleanup_policy=frozenset({"compact"}))
CLOSED = tuple(SegmentFacts(base, 100, NOW_MS - 900 + base, NOW_MS - 900 + base) for base in
               (0, 10, 20, 30))  # fmt: skip


def found(
    config: LogConfig = CONFIG, *, first_dirty_offset: int = 0, stable_offset: int = 99
) -> Cleanable | None:
    return cleanable(
        CLOSED,
        config,
        active_offset=40,
        first_dirty_offset=first_dirty_offset,
        stable_offset=stable_offset,
        now_ms=NOW_MS,
    )


def test_closed_segments_are_cleanable_and_the_active_one_is_not() -> None:
    all_of_it = found()

    assert all_of_it is not None
    assert (all_of_it.segments, all_of_it.end_offset) == (CLOSED, 40)
    assert all_of_it.dirty_ratio == 1.0


@pytest.mark.parametrize(("stable_offset", "end"), [(39, 30), (40, 40), (11, 10)])
def test_an_undecided_range_is_not_cleaned(stable_offset: int, end: int) -> None:
    part = found(stable_offset=stable_offset)

    assert part is not None
    assert part.end_offset == end


@pytest.mark.parametrize("stable_offset", [0, 9])
def test_a_log_without_a_decided_segment_has_nothing_to_clean(stable_offset: int) -> None:
    assert found(stable_offset=stable_offset) is None


def test_cleaned_bytes_count_only_towards_the_ratio() -> None:
    half = found(first_dirty_offset=20)

    assert half is not None
    assert (half.clean_bytes, half.dirty_bytes, half.dirty_ratio) == (200, 200, 0.5)
    assert not half.is_due(CONFIG)  # more than the ratio is asked for
    assert half.is_due(replace(CONFIG, min_cleanable_dirty_ratio=0.49))
    assert found(first_dirty_offset=40) is None


def test_records_younger_than_the_minimum_lag_stay_for_now() -> None:
    young = found(replace(CONFIG, min_compaction_lag_ms=885))

    assert young is not None
    assert young.end_offset == 20  # the third segment's newest record is 880 ms old


def test_dirt_older_than_the_maximum_lag_is_due_whatever_the_ratio() -> None:
    config = replace(CONFIG, min_cleanable_dirty_ratio=1.0, max_compaction_lag_ms=885)
    dirty_for_long, dirty_of_late = found(config), found(config, first_dirty_offset=20)

    assert dirty_for_long is not None
    assert dirty_for_long.is_due(config)
    assert dirty_of_late is not None
    assert not dirty_of_late.is_due(config)


def test_a_mark_outside_the_log_is_corrected() -> None:
    below = cleanable(
        CLOSED[1:],
        CONFIG,
        active_offset=40,
        first_dirty_offset=3,
        stable_offset=99,
        now_ms=NOW_MS,
    )

    assert below is not None
    assert below.first_dirty_offset == 10
    assert found(first_dirty_offset=1000) is None


SIZES = st.lists(st.tuples(st.integers(0, 100), st.integers(0, 40)), min_size=1, max_size=12)


@given(SIZES)
def test_groups_keep_the_order_and_the_limits(sizes: list[tuple[int, int]]) -> None:
    segments = [
        SegmentFacts(number * 10, size, 0, 0, index, index // 2)
        for number, (size, index) in enumerate(sizes)
    ]

    groups = group_segments(segments, end_offset=len(sizes) * 10, segment_bytes=100, index_bytes=40)

    assert [segment for group in groups for segment in group] == segments
    for group in groups:
        assert len(group) == 1 or sum(segment.size for segment in group) <= 100
        assert len(group) == 1 or sum(segment.index_size for segment in group) <= 40
    for group, following in pairwise(groups):
        together = [*group, following[0]]
        is_full = sum(segment.size for segment in together) > 100
        assert is_full or sum(segment.index_size for segment in together) > 40


def test_a_group_never_spans_more_offsets_than_an_index_counts() -> None:
    for third, lengths in (((1 << 31), [2, 1]), ((1 << 31) + 1, [1, 1, 1])):
        far = [SegmentFacts(base, 1, 0, 0) for base in (0, 5, third)]

        groups = group_segments(far, end_offset=1 << 32, segment_bytes=100, index_bytes=100)

        assert [len(group) for group in groups] == lengths
