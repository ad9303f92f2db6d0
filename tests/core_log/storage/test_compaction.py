"""However often a log is compacted, its readers end up with the table it always described."""

from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.core_log.records.record_codec import PlainRecord
from headwater.core_log.storage.verification import Promise, VerificationStats, verify_partition
from tests.core_log.storage.compacted_partition import (
    DIRECTORY,
    RETENTION_MS,
    Batch,
    CompactedPartition,
    Visible,
    fold,
)

KEYS = st.sampled_from([b"a", b"b", b"c", b"d", b"e" * 300, b"f" * 9, b""]) | st.none()
VALUES = st.none() | st.binary(max_size=6) | st.just(b"long " * 40)
HEADERS = st.sampled_from([(), (("h", b"1"),), (("h", None), ("i", b""))])
RECORDS = st.lists(
    st.builds(PlainRecord, KEYS, VALUES, HEADERS, st.just(0), st.just(-1)), min_size=1, max_size=5
)
PRODUCERS = st.integers(0, 3)
LIMITS = st.tuples(st.sampled_from([1, 500, 1 << 20]), st.sampled_from([5, 1000]))

Action = Callable[[CompactedPartition], object]


def appends() -> st.SearchStrategy[Action]:
    return st.builds(
        lambda records, producer, code: (
            lambda log: log.append(records, producer_id=producer, compression=code)
        ),
        RECORDS,
        st.just(-1) | PRODUCERS,
        st.just(0) | st.integers(0, 4),
    )


def ends() -> st.SearchStrategy[Action]:
    return st.builds(
        lambda producer, commit: lambda log: log.end(producer, commit=commit),
        PRODUCERS,
        st.booleans(),
    )


def passing() -> st.SearchStrategy[Action]:
    def wait(by_ms: int) -> Action:
        def action(log: CompactedPartition) -> None:
            log.now_ms += by_ms

        return action

    return st.sampled_from([1, RETENTION_MS // 2, RETENTION_MS]).map(wait)


def compactions() -> st.SearchStrategy[Action]:
    return LIMITS.map(lambda limits: lambda log: compact_and_check(log, *limits))


def rolls() -> st.SearchStrategy[Action]:
    return st.just(lambda log: log.roll())


ACTIONS = st.lists(
    st.one_of(appends(), appends(), appends(), ends(), passing(), compactions(), rolls()),
    max_size=30,
)


def compact_and_check(log: CompactedPartition, segment_bytes: int, keys: int) -> None:
    log.roll()
    before, batches = log.stored(), log.batches()
    if log.compact(segment_bytes=segment_bytes, memory_bytes_max=40 * keys):
        check_records(log, before)
        check_markers(log, batches)


def check_records(log: CompactedPartition, before: list[Visible]) -> None:
    """Below the first dirty offset only the newest of each key is left, tombstones for a time."""
    newest = {r.key: r.offset for r in log.appended() if r.offset < log.first_dirty_offset}
    noted = {r.key: r.offset for r in log.appended() if r.offset < log.cleaned_to}
    left = {record.offset for record in log.stored()}
    for record in before:
        is_newest = record.key is not None and newest.get(record.key) == record.offset
        if record.offset >= log.first_dirty_offset:
            assert record.offset in left, "nothing beyond the pass is touched"
        elif not is_newest:
            assert record.offset not in left, "an older value is left"
        elif noted[record.key] != record.offset:
            continue  # the pass ended before this newer one, and may have known of it
        elif record.value is not None:
            assert record.offset in left, "the newest value is gone"
        else:
            is_dropped = log.is_past_horizon(record.offset)
            assert (record.offset not in left) == is_dropped
            assert not is_dropped or record.offset < log.deletes_dropped_to
    assert left <= {record.offset for record in before}


def check_markers(log: CompactedPartition, before: list[Batch]) -> None:
    """A marker stays until no batch of its transaction was met, and then for a time."""
    left = {header.base_offset for header, _ in log.batches()}
    for place, (header, records) in enumerate(before):
        if not header.is_control or not records or header.base_offset >= log.first_dirty_offset:
            continue
        earlier = (head for head, _ in before[:place] if head.producer_id == header.producer_id)
        last = max(earlier, key=lambda head: head.base_offset, default=None)
        is_bare = last is None or last.is_control
        may_go = is_bare and log.is_past_horizon(header.base_offset)
        is_last = header.next_offset in (*log.bases(), log.end_offset)
        assert (header.base_offset in left) or may_go
        assert not may_go or is_last or header.base_offset not in left


def check(log: CompactedPartition) -> None:
    """What must be so at any time."""
    stored, appended = log.stored(), log.appended()
    assert set(stored) <= set(appended)
    assert all(one.offset < two.offset for one, two in pairwise(stored))
    assert fold(stored) == fold(appended)
    for offset in range(log.cleaned_to, log.end_offset + 1):
        then = [record for record in stored if record.offset < offset]
        assert fold(then) == fold(record for record in appended if record.offset < offset)
    for offset in range(log.deletes_dropped_to, log.end_offset + 1):
        table = fold(record for record in appended if record.offset < offset)
        assert fold((r for r in stored if r.offset >= offset), table) == fold(appended)
    check_heads(log)
    bases, ends = log.bases(), log.segment_ends()
    assert all(end <= base for end, base in zip(ends[:-1], bases[1:], strict=True))
    promise = Promise(cleaned_to=log.cleaned_to)
    findings = list(verify_partition(log.files, DIRECTORY, promise, VerificationStats()))
    assert not findings, findings


def check_heads(log: CompactedPartition) -> None:
    heads = [header for header, _ in log.batches()]
    for producer_id, (last_offset, sequence) in log.active():
        mine = [head for head in heads if head.producer_id == producer_id and not head.is_control]
        assert (mine[-1].last_offset, mine[-1].base_sequence) == (last_offset, sequence)
    markers = {s.base_offset: s for s in log.history if s.marker}
    for header, records in log.batches():
        times = [record.timestamp_ms for record in records]
        assert not times or header.max_timestamp == max(times)
        if records and header.is_transactional and not header.is_control:
            ends = (
                offset
                for offset, stored in markers.items()
                if offset > header.last_offset and stored.producer_id == header.producer_id
            )
            end = min(ends, default=None)
            assert end is None or any(head.base_offset == end for head in heads)
    for header, records in log.batches():
        ends_pass = header.next_offset in (log.first_dirty_offset, log.end_offset)
        assert records or header.producer_id >= 0 or ends_pass, "who needs this empty batch"
    assert heads[-1].next_offset == log.end_offset if heads else log.end_offset == 0


@pytest.mark.slow
@given(ACTIONS, st.lists(LIMITS, min_size=5, max_size=5))
def test_a_compacted_log_describes_the_same_table_to_every_reader(
    actions: list[Action], passes: list[tuple[int, int]]
) -> None:
    log = CompactedPartition()

    for action in actions:
        action(log)

    check(log)
    for producer_id in list(log.open):
        log.end(producer_id, commit=producer_id % 2 == 1)
    for segment_bytes, keys in passes:
        log.now_ms += RETENTION_MS // 2
        log.append([PlainRecord(b"a", b"end")])
        log.append([PlainRecord(b"b", None), PlainRecord(b"g", None)])
        compact_and_check(log, segment_bytes, keys)
        check(log)


def test_an_earlier_abort_of_a_producer_takes_nothing_of_its_later_transactions() -> None:
    log = CompactedPartition()
    log.append([PlainRecord(b"a", b"aborted")], producer_id=0)
    log.end(0, commit=False)
    log.append([PlainRecord(b"b", b"first")], producer_id=0)
    log.end(0, commit=True)
    compact_and_check(log, 1 << 20, 1000)
    log.append([PlainRecord(b"b", b"newest")], producer_id=0)
    log.end(0, commit=True)
    log.append([PlainRecord(b"c", b"end")])

    compact_and_check(log, 1 << 20, 1000)

    check(log)
    assert fold(log.stored()) == {b"b": b"newest", b"c": b"end"}
