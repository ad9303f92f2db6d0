"""A committed reader sees the batches of committed transactions and plain ones, and no others."""

from hypothesis import given
from hypothesis import strategies as st

from headwater.core_log.client.fetcher import (
    NOTHING,
    AbortedRange,
    committed_batches,
    whole_batches,
)
from headwater.core_log.model.log import Fetched, TopicPartition
from headwater.core_log.records.batch_header import BatchHeader
from headwater.core_log.records.record_codec import (
    PlainRecord,
    encode_batch,
    encode_marker,
    iterate_batches,
)

PLAIN = -1
PLACE = TopicPartition("orders", 0)


class History:
    """A partition as brokers write it, and what a reader should make of it."""

    def __init__(self) -> None:
        self.batches: list[bytes] = []
        self.aborted: list[tuple[AbortedRange, int]] = []  # with the offset of the marker
        self.visible: list[int] = []
        self._open: dict[int, list[int]] = {}
        self.end = 0

    def append(self, producer: int, records: int) -> None:
        is_plain = producer == PLAIN
        data = encode_batch(
            [PlainRecord(b"k", b"v", timestamp_ms=1)] * records,
            producer_id=producer,
            producer_epoch=PLAIN if is_plain else 0,
            base_sequence=PLAIN if is_plain else 0,
            is_transactional=not is_plain,
            base_offset=self.end,
        )
        self.batches.append(bytes(data))
        (self.visible if is_plain else self._open.setdefault(producer, [])).append(self.end)
        self.end += records

    def finish(self, producer: int, *, commit: bool) -> None:
        offsets = self._open.pop(producer, [])
        marker = encode_marker(
            commit=commit,
            producer_id=producer,
            producer_epoch=0,
            coordinator_epoch=0,
            timestamp_ms=1,
            base_offset=self.end,
        )
        self.batches.append(bytes(marker))
        if commit:
            self.visible += offsets
        elif offsets:
            self.aborted.append((AbortedRange(offsets[0], producer), self.end))
        self.end += 1

    def finish_all(self) -> None:
        for producer in list(self._open):
            self.finish(producer, commit=True)

    def fetch(self, start: int) -> tuple[memoryview, list[AbortedRange]]:
        """What a broker sends from the batch that holds `start`: transactions aborted behind it."""
        kept = [batch for batch in self.batches if BatchHeader.read(batch).next_offset > start]
        aborted = [span for span, marker in self.aborted if marker >= start]
        return memoryview(b"".join(kept)), aborted


steps = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.sampled_from([PLAIN, 1, 2, 3]), st.integers(1, 3)),
        st.tuples(st.just("finish"), st.sampled_from([1, 2, 3]), st.booleans()),
    ),
    max_size=25,
)


@given(steps=steps, data=st.data())
def test_aborted_batches_are_left_out_wherever_reading_begins(
    steps: list[tuple[str, int, int]], data: st.DataObject
) -> None:
    history = History()
    for kind, producer, detail in steps:
        if kind == "append":
            history.append(producer, detail)
        else:
            history.finish(producer, commit=bool(detail))
    history.finish_all()
    start = data.draw(st.integers(0, history.end))

    fetched, aborted = history.fetch(start)
    seen = committed_batches(PLACE, fetched, start, aborted)

    first = BatchHeader.read(fetched).base_offset if fetched else history.end
    offsets = [BatchHeader.read(batch).base_offset for batch in iterate_batches(seen.data)]
    assert offsets == sorted(offset for offset in history.visible if offset >= first)
    assert seen.next_offset == history.end


@given(cut=st.integers(0, 300))
def test_a_torn_batch_at_the_end_is_left_for_the_next_fetch(cut: int) -> None:
    history = History()
    for _ in range(3):
        history.append(PLAIN, 2)
    everything, _ = history.fetch(0)
    size = len(history.batches[0])
    torn = everything[: min(cut, len(everything))]

    whole, committed = whole_batches(PLACE, torn, 0), committed_batches(PLACE, torn, 0, [])

    batches = len(torn) // size
    assert whole == committed == Fetched(PLACE, everything[: batches * size], batches * 2)


def test_nothing_fetched_moves_nobody() -> None:
    assert whole_batches(PLACE, NOTHING, 5) == Fetched(PLACE, NOTHING, 5)
    assert committed_batches(PLACE, NOTHING, 5, []) == Fetched(PLACE, NOTHING, 5)


def test_data_from_which_nothing_is_left_out_is_not_copied() -> None:
    history = History()
    history.append(1, 1)
    history.append(1, 1)
    history.finish_all()
    fetched, aborted = history.fetch(0)

    seen = committed_batches(PLACE, fetched, 0, aborted)

    assert seen.data.obj is fetched.obj
