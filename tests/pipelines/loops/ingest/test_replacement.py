"""A table that is read again as a whole: what the source no longer has goes, and nothing else."""

import asyncio
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import cycle
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.core_log.client.gather import let_go
from headwater.core_log.foundation.errors import BeingReadAgain, PositionLost
from headwater.core_log.model.changes import (
    ChangeBatch,
    Phase,
    Positions,
    Replacement,
    source_times,
)
from headwater.core_log.model.log import TopicPartition
from headwater.core_log.model.table_schema import TableId, TableSchema
from headwater.pipelines.journal.commits import load_positions
from headwater.pipelines.journal.replacements import (
    beginnings_of,
    check_not_reread,
    mixed_in,
    replacements_of,
)
from headwater.pipelines.loops.deliver.slicer import SliceLimits, Slicer
from headwater.pipelines.loops.ingest import missing_rows
from headwater.pipelines.reports import StateChanged, TaskState
from headwater.pipelines.time_travel.history.as_of import OffsetsAsOf
from headwater.pipelines.time_travel.history.cut_points import find_cut_point
from headwater.sinks.sink import Slice
from tests.memory_log import Crash, Fuse
from tests.pipelines.pipeline_in_memory import (
    PIPELINE,
    Change,
    MemorySink,
    ScriptedSource,
    World,
    schema_of,
    tables_of,
)

KEYS = range(6)
CHANGES = st.tuples(
    st.just("orders"), st.sampled_from("cudt"), st.sampled_from(KEYS), st.text(max_size=2)
)
HISTORIES = st.lists(st.lists(CHANGES, min_size=1, max_size=3), max_size=5)


class Reread(NamedTuple):
    """What the table loses unseen before it is read again, and changes meanwhile and behind it."""

    lost: frozenset[int]
    """Keys that go at the source without a change in its log."""
    meanwhile: Sequence[Sequence[Change]] = ()
    behind: Sequence[Sequence[Change]] = ()


@dataclass
class History:
    """Changes of a table that is read again, once or several times."""

    before: Sequence[Sequence[Change]]
    rereads: Sequence[Reread]

    def batches(self) -> list[ChangeBatch]:
        """Of the source, each with the position behind it."""
        found, rows = list[ChangeBatch](), dict[int, str]()

        def add(histories: Sequence[Sequence[Change]]) -> None:
            for changes in histories:
                found.append(ChangeBatch(tables_of(changes, commit=len(found)), {}))
                apply(rows, changes)

        add(self.before)
        schema = schema_of("orders")
        for each in self.rereads:
            for key in each.lost:
                rows.pop(key, None)
            found.append(ChangeBatch((), {}, replacements=(Replacement(schema, Phase.STARTED),)))
            for key, value in rows.copy().items():
                read = tables_of([("orders", "r", key, value)], commit=len(found))
                found.append(ChangeBatch(read, {}))
            add(each.meanwhile)
            end = Replacement(
                schema,
                Phase.COMPLETE,
                commit="end",
                source={"connector": "script", **source_times(7)},
            )
            found.append(ChangeBatch((), {}, replacements=(end,)))
            add(each.behind)
        self.rows = rows
        return [
            ChangeBatch(each.tables, {"stream": str(number + 1)}, replacements=each.replacements)
            for number, each in enumerate(found)
        ]


class ReplacedSource(ScriptedSource):
    def __init__(self, history: History, fuse: Fuse) -> None:
        super().__init__([], fuse)
        self._history = history

    async def changes(self, resume_from: Positions) -> AsyncGenerator[ChangeBatch, None]:
        for batch in self._history.batches()[int(resume_from.get("stream", 0)) :]:
            self.fuse.before()
            yield batch
            self.fuse.done()


class ReplacedWorld(World):
    def __init__(self, history: History, *, partitions: int) -> None:
        super().__init__([], partitions=partitions)
        self.history = history

    def new_source(self, fuse: Fuse) -> ScriptedSource:
        return ReplacedSource(self.history, fuse)


def apply(rows: dict[int, str], changes: Sequence[Change]) -> None:
    for _, letter, key, value in changes:
        if letter == "t":
            rows.clear()
        elif letter == "d":
            rows.pop(key, None)
        else:
            rows[key] = value


REREADS = st.builds(Reread, st.frozensets(st.sampled_from(KEYS)), HISTORIES, HISTORIES)


@pytest.mark.slow
@settings(deadline=None)
@given(
    before=HISTORIES,
    rereads=st.lists(REREADS, min_size=1, max_size=2),
    crashes=st.lists(st.tuples(st.integers(1, 60), st.booleans()), max_size=4),
    partitions=st.sampled_from((1, 3)),
    steps=st.lists(st.integers(0, 30), min_size=1, max_size=4),
)
def test_a_replaced_table_equals_its_source_wherever_it_crashed(
    before: Sequence[Sequence[Change]],
    rereads: Sequence[Reread],
    crashes: list[tuple[int, bool]],
    partitions: int,
    steps: list[int],
) -> None:
    history = History(before, rereads)
    world = ReplacedWorld(history, partitions=partitions)

    with slow_search(steps):
        for at, after in crashes:
            with suppress(Crash):
                asyncio.run(world.run(Fuse(at, after=after)))
        asyncio.run(world.run(Fuse()))

    assert world.target.tables.get("orders", {}) == history.rows
    assert len(world.target.applied) == len(set(world.target.applied))


@contextmanager
def slow_search(steps: Sequence[int]) -> Iterator[None]:
    """Changes go on while missing rows are looked for, which are deleted one by one."""
    read_on, left = missing_rows.GoneKeys.read_on, cycle(steps)

    async def read_on_later(keys: missing_rows.GoneKeys) -> None:
        for _ in range(next(left)):
            await asyncio.sleep(0)
        await read_on(keys)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(missing_rows.GoneKeys, "read_on", read_on_later)
        patched.setattr(missing_rows, "DELETES_AT_ONCE", 1)
        yield


async def test_the_beginning_of_a_replacement_that_has_ended_is_remembered() -> None:
    history = History([[("orders", "c", 1, "a")]], [Reread(frozenset({1}))])
    world = ReplacedWorld(history, partitions=1)

    await world.run(Fuse())

    positions = await load_positions(world.log, PIPELINE)
    place = TopicPartition(f"{PIPELINE}.public.orders", 0)
    assert not replacements_of(positions)
    ids = {place.topic: await world.log.topic_id(place.topic)}
    assert beginnings_of(positions, ids) == {place: 1}
    assert not beginnings_of(positions, {place.topic: "another"})


async def test_the_beginning_of_the_last_one_that_ended_is_remembered_while_the_next_goes_on() -> (
    None
):
    """Else deleted rows with values of a former type would differ meanwhile."""
    before: list[Sequence[Change]] = [[("orders", "c", 1, "a")]]
    first, second = Reread(frozenset()), Reread(frozenset())
    world = ReplacedWorld(History(before, [first]), partitions=1)
    await world.run(Fuse())

    world.history = SecondBeginning(before, [first, second])
    await world.run(Fuse())

    positions = await load_positions(world.log, PIPELINE)
    place = TopicPartition(f"{PIPELINE}.public.orders", 0)
    [stored] = replacements_of(positions).values()
    assert stored.former, "the second one goes on"
    ids = {place.topic: await world.log.topic_id(place.topic)}
    assert beginnings_of(positions, ids) == {place: 1}


class SecondBeginning(History):
    """Up to the start of the last reading."""

    def batches(self) -> list[ChangeBatch]:
        found = super().batches()
        last = max(at for at, each in enumerate(found) if is_start(each))
        return found[: last + 1]


def is_start(batch: ChangeBatch) -> bool:
    return any(each.phase is Phase.STARTED for each in batch.replacements)


async def test_no_moment_is_told_between_the_news_of_a_replacement_and_its_end() -> None:
    before: list[Sequence[Change]] = [[("orders", "c", key, "a")] for key in KEYS]
    history = History(before, [Reread(frozenset({1}))])
    place = TopicPartition(f"{PIPELINE}.public.orders", 0)
    world = ReplacedWorld(Beginning(history.before, history.rereads), partitions=1)

    await world.run(Fuse())
    with pytest.raises(BeingReadAgain):
        await check_not_reread(world.log, PIPELINE, [schema_of("orders").table])
    told_within = await told_moments(world, place)
    world.history = history
    await world.run(Fuse())
    told_behind = await told_moments(world, place)

    [mixed] = mixed_in(
        await load_positions(world.log, PIPELINE), await world.log.topic_id(place.topic)
    )
    assert told_within == [*range(mixed.since[0] + 1)]
    assert told_behind == [*told_within, *range(mixed.until[0], told_behind[-1] + 1)]
    assert len(before) <= mixed.since[0] < mixed.until[0] - len(KEYS) + 1
    await check_not_reread(world.log, PIPELINE, [schema_of("orders").table])


@pytest.mark.parametrize("lost", [(), (1,)])
async def test_a_slice_says_of_which_table_it_ends_at_no_moment(lost: tuple[int, ...]) -> None:
    before: list[Sequence[Change]] = [[("orders", "c", key, "a"), ("items", "c", 1, "a")]
                                      for key in KEYS]  # fmt: skip
    history = History(before, [Reread(frozenset(lost))])
    world = ReplacedWorld(Beginning(history.before, history.rereads), partitions=1)
    topic = f"{PIPELINE}.public.orders"

    await world.run(Fuse())
    within = await slice_of(world, names_mixed_tables=True)
    held = await slice_of(world, names_mixed_tables=True, held=[topic])
    unasked = await slice_of(world, names_mixed_tables=False, held=[topic])
    world.history = history
    await world.run(Fuse())
    behind = await slice_of(world, names_mixed_tables=True)

    assert (within.is_whole, within.left_out) == (True, frozenset({topic}))
    assert (held.is_whole, held.left_out) == (True, frozenset({topic}))
    assert (unasked.is_whole, unasked.left_out) == (False, frozenset())
    assert (behind.is_whole, behind.left_out) == (True, frozenset())


async def slice_of(
    world: ReplacedWorld, *, names_mixed_tables: bool, held: Sequence[str] = ()
) -> Slice:
    """All that the log holds, but for what is held."""
    reader = world.delivery(MemorySink(world.target, Fuse()), records=1).reader
    slicer = Slicer(
        world.log,
        PIPELINE,
        limits=SliceLimits(records=1 << 20, bytes=1 << 30, wait_ms=0),
        read=reader.read,
        clock=world.clock,
        names_mixed_tables=names_mixed_tables,
    )
    await slicer.start({})
    slicer.hurry()
    while True:
        if (part := await slicer.next(held)) is not None:
            return part


class Beginning(History):
    """Of the same one, up to the first row that is read again."""

    def batches(self) -> list[ChangeBatch]:
        return super().batches()[: len(self.before) + 2]


async def told_moments(world: ReplacedWorld, place: TopicPartition) -> list[int]:
    found = list[int]()
    for offset in range((await world.log.bounds([place]))[place].stable + 1):
        with suppress(PositionLost):
            await find_cut_point(world.log, PIPELINE, OffsetsAsOf({0: offset}), [place])
            found.append(offset)
    return found


async def test_a_missing_row_is_deleted_once_and_a_present_one_never() -> None:
    before: list[Sequence[Change]] = [[("orders", "c", key, "a")] for key in KEYS]
    history = History(before, [Reread(frozenset({1, 2}))])
    world = ReplacedWorld(history, partitions=1)

    await world.run(Fuse())

    place = TopicPartition(f"{PIPELINE}.public.orders", 0)
    offsets = [at for topic, at in world.target.applied if topic == place]
    assert len(offsets) == len(before) + len(KEYS) - 2 + 2


@pytest.mark.slow
async def test_a_partition_with_more_keys_than_room_is_read_in_passes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(missing_rows, "PASS_RECORDS", 10)
    monkeypatch.setattr(missing_rows, "MERGE_RECORDS", 3)
    before: list[Sequence[Change]] = [[("orders", "c", key, "a")] for key in range(50)]
    history = History(before, [Reread(frozenset(range(0, 50, 3)))])
    world = ReplacedWorld(history, partitions=1)

    await world.run(Fuse())

    assert world.target.tables["orders"] == history.rows


class GatedSource(ReplacedSource):
    """Ends, or waits for more changes, once its last position is acknowledged."""

    def __init__(self, history: History, fuse: Fuse, gate: asyncio.Event) -> None:
        super().__init__(history, fuse)
        self._gate = gate

    async def acknowledge(self, positions: Positions) -> None:
        await super().acknowledge(positions)
        if positions.get("stream") == str(len(self._history.batches())):
            self._gate.set()


async def test_changes_are_committed_while_missing_rows_are_looked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before: list[Sequence[Change]] = [[("orders", "c", key, "a")] for key in KEYS]
    behind: list[Sequence[Change]] = [[("orders", "c", 1, "b")], [("items", "c", 1, "a")]]
    history = History(before, [Reread(frozenset({1, 2}), behind=behind)])
    world, gate = ReplacedWorld(history, partitions=1), asyncio.Event()
    monkeypatch.setattr(world, "new_source", lambda fuse: GatedSource(history, fuse, gate))
    read_on = missing_rows.GoneKeys.read_on

    async def read_on_behind(keys: missing_rows.GoneKeys) -> None:
        await gate.wait()
        await read_on(keys)

    monkeypatch.setattr(missing_rows.GoneKeys, "read_on", read_on_behind)

    await world.run(Fuse())

    assert world.target.tables["items"] == {1: "a"}
    assert world.target.tables["orders"] == {0: "a", 1: "b", 3: "a", 4: "a", 5: "a"}


class QuietSource(ReplacedSource):
    """Has no more changes after its last, and does not end."""

    async def changes(self, resume_from: Positions) -> AsyncGenerator[ChangeBatch, None]:
        async for batch in super().changes(resume_from):
            yield batch
        await asyncio.Event().wait()


class RereadReports(list[Any]):
    """Tells when a table has been read again."""

    def __init__(self) -> None:
        self.ended = asyncio.Event()

    def append(self, report: Any) -> None:
        super().append(report)
        if isinstance(report, StateChanged) and report.table and report.state is TaskState.RUNNING:
            self.ended.set()


async def test_a_source_at_rest_does_not_hold_up_the_deletes_of_missing_rows() -> None:
    before: list[Sequence[Change]] = [[("orders", "c", key, "a")] for key in KEYS]
    world = ReplacedWorld(History(before, []), partitions=1)
    await world.run(Fuse())
    world.reports = reports = RereadReports()
    history = History(before, [Reread(frozenset({1, 2}))])

    ingesting = asyncio.ensure_future(world.ingest_from(QuietSource(history, Fuse())))
    await reports.ended.wait()
    await let_go(ingesting)
    await world.deliver(Fuse())

    assert world.target.tables["orders"].keys() == {0, 3, 4, 5}


class ToldSource(ScriptedSource):
    """Says one thing of its tables in each batch."""

    def __init__(self, phases: Sequence[Phase]) -> None:
        super().__init__([], Fuse())
        self._phases = phases

    async def changes(self, resume_from: Positions) -> AsyncGenerator[ChangeBatch, None]:
        for number in range(int(resume_from.get("stream", 0)), len(self._phases)):
            phase, schema = self._phases[number], schema_of("orders")
            if phase is Phase.GONE:  # PostgreSQL's source knows only the whole name then
                schema = TableSchema(TableId("", str(schema.table)), (), ())
            told = Replacement(schema, phase, "it was altered")
            yield ChangeBatch((), {"stream": str(number + 1)}, replacements=(told,))


@pytest.mark.parametrize("waits", [Phase.PENDING, Phase.QUARANTINED, Phase.STARTED])
async def test_a_reread_of_a_table_that_is_gone_ends_without_its_rows(waits: Phase) -> None:
    before: list[Sequence[Change]] = [[("orders", "c", key, "a")] for key in KEYS]
    world = ReplacedWorld(History(before, []), partitions=1)
    await world.run(Fuse())
    phases = [*[Phase.COMPLETE] * len(before), waits, Phase.GONE, Phase.GONE]

    await world.ingest_from(ToldSource(phases[:-2]))
    waiting = replacements_of(await load_positions(world.log, PIPELINE))
    await world.ingest_from(ToldSource(phases))
    left = replacements_of(await load_positions(world.log, PIPELINE))
    states = [each.state for each in world.reports if isinstance(each, StateChanged) and each.table]
    await world.deliver(Fuse())

    assert [each.phase for each in waiting.values()] == [waits]
    assert not left
    assert states[-1] is TaskState.RUNNING
    assert world.target.tables["orders"] == dict.fromkeys(KEYS, "a")


async def test_a_reread_of_a_table_whose_topic_is_gone_too_is_forgotten() -> None:
    before: list[Sequence[Change]] = [[("orders", "c", key, "a")] for key in KEYS]
    world = ReplacedWorld(History(before, []), partitions=1)
    await world.run(Fuse())
    phases = [*[Phase.COMPLETE] * len(before), Phase.PENDING, Phase.GONE]
    await world.ingest_from(ToldSource(phases[:-1]))
    [waiting] = replacements_of(await load_positions(world.log, PIPELINE)).values()

    world.log.delete_topic(waiting.topic)
    await world.ingest_from(ToldSource(phases))

    assert waiting.part not in await load_positions(world.log, PIPELINE)
