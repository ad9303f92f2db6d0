"""A moment of the past is found exactly, wherever the log's own transactions begin and end."""

import random
from collections.abc import Sequence

import pyarrow as pa
import pytest

from headwater.core_log.foundation.errors import ConfigError, PositionLost
from headwater.core_log.model.log import Bounds, TopicPartition
from headwater.pipelines.journal.internal_topics import internal_topics
from headwater.pipelines.loops.ingest.ingest import IngestLimits, ingest
from headwater.pipelines.time_travel.history import commit_index
from headwater.pipelines.time_travel.history.as_of import AsOf, OffsetsAsOf, before, parse_as_of
from headwater.pipelines.time_travel.history.cut_points import (
    CutPoint,
    find_cut_point,
    given_offsets,
    newest_cut_point,
)
from headwater.pipelines.time_travel.verify.keyed_diff import KeyedDiff
from headwater.pipelines.time_travel.verify.log_state import ComparedColumns, LogFold
from tests.memory_log import Fuse
from tests.pipelines.pipeline_in_memory import (
    PIPELINE,
    Transaction,
    Unrouted,
    World,
    fold,
    schema_of,
)

TABLE = "orders"
TOPIC = f"{PIPELINE}.public.{TABLE}"
NOW_MS = 1_700_000_000_000


def made_up(count: int, *, seed: int) -> list[Transaction]:
    """Transactions of up to three batches over a handful of keys, truncates among them."""
    chance = random.Random(seed)
    script: list[Transaction] = []
    for number in range(count):
        batches = []
        for _ in range(chance.randint(1, 3)):
            letters = chance.choices("cudt", [5, 3, 3, 0.3], k=chance.randint(1, 4))
            batches.append([(TABLE, each, chance.randrange(12), f"{number}") for each in letters])
        script.append(batches)
    return script


async def told(script: Sequence[Transaction], *, partitions: int = 1, bytes_max: int) -> World:
    """Several transactions of the source in each of the log, as many as `bytes_max` lets."""
    world = World(script, partitions=partitions)
    for topic in internal_topics(history_ms=1_000):
        await world.log.ensure_topic(topic)
    await ingest(
        PIPELINE,
        world.new_source(Fuse()),
        world.log,
        new_encoder=world.encoder,
        limits=IngestLimits(batch_wait_ms=60_000, transaction_bytes_max=bytes_max),
        clock=world.clock,
        report=world.reports.append,
    )
    return world


async def at(world: World, as_of: AsOf) -> CutPoint:
    places = [TopicPartition(TOPIC, number) for number in range(world.partitions)]
    return await find_cut_point(world.log, PIPELINE, as_of, places)


async def differing(
    world: World, expected: Sequence[tuple[CutPoint, Sequence[Transaction]]]
) -> list[int]:
    """For each moment how many keys are not as those transactions have left them."""
    shape = ComparedColumns(schema_of(TABLE), ("id", "value"))
    reader = LogFold(world.log, shape, after_log=Unrouted(), fetch_bytes=1_000)
    states = await reader.states([cut_point.ends for cut_point, _ in expected])
    found = []
    for state, (_, script) in zip(states, expected, strict=True):
        comparison = KeyedDiff(state, shape)
        rows = [{"id": id, "value": value} for id, value in fold(script).get(TABLE, {}).items()]
        comparison.take(pa.RecordBatch.from_pylist(rows, schema=shape.schema.arrow))
        found.append(comparison.finish().differing)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("partitions", [1, 3])
@pytest.mark.parametrize("bytes_max", [1, 700, 1 << 20])
async def test_a_table_as_of_every_transaction_is_as_it_was(
    partitions: int, bytes_max: int
) -> None:
    script = made_up(14, seed=partitions + bytes_max)
    world = await told(script, partitions=partitions, bytes_max=bytes_max)

    expected = [
        (await at(world, before(str(number))), script[:number])
        for number in range(1, len(script) + 1)
    ]

    assert await differing(world, expected) == [0] * len(script)


@pytest.mark.slow
@pytest.mark.parametrize("bytes_max", [1, 700, 1 << 20])
async def test_a_table_as_of_a_time_counts_the_sources_commits(bytes_max: int) -> None:
    """The script's transactions are committed a second apart, the first of them at zero."""
    script = made_up(12, seed=7)
    world = await told(script, bytes_max=bytes_max)

    expected = []
    for number in range(len(script)):
        text = f"1970-01-01T00:00:{number:02d}.500"
        cut_point = await at(world, parse_as_of(text, now_ms=NOW_MS))
        expected.append((cut_point, script[: number + 1]))

    assert await differing(world, expected) == [0] * len(script)


@pytest.mark.slow
@pytest.mark.parametrize("linear", [1, 3])
async def test_many_commits_are_halved_to_the_same_moment(
    monkeypatch: pytest.MonkeyPatch, linear: int
) -> None:
    world = await told(made_up(14, seed=11), partitions=2, bytes_max=1)
    wanted: list[AsOf] = [before(str(number)) for number in range(1, 15)]
    times = [f"1970-01-01T00:00:{number:02d}.500" for number in range(14)]
    wanted += [parse_as_of(time, now_ms=NOW_MS) for time in times]

    slowly = [(await at(world, each)).ends for each in wanted]
    monkeypatch.setattr(commit_index, "LINEAR_OFFSETS", linear)
    quickly = [(await at(world, each)).ends for each in wanted]

    assert quickly == slowly


async def test_several_moments_are_told_from_one_reading() -> None:
    script = made_up(20, seed=3)
    world = await told(script, partitions=2, bytes_max=500)

    expected = [(await at(world, before(str(number))), script[:number]) for number in (15, 4, 20)]

    assert await differing(world, expected) == [0, 0, 0]


async def test_a_time_before_the_oldest_commit_is_refused() -> None:
    world = await told(made_up(5, seed=1), bytes_max=1)

    with pytest.raises(PositionLost, match="oldest possible is 1970-01-01T00:00:00"):
        await at(world, parse_as_of("1969-12-31T23:59:59", now_ms=NOW_MS))


async def test_a_time_that_compaction_has_passed_is_refused_and_the_oldest_possible_is_not() -> (
    None
):
    script = made_up(20, seed=5)
    world = await told(script, bytes_max=1)
    place = TopicPartition(TOPIC, 0)
    seventh = await at(world, before("7"))
    world.log.partitions[place].cleaned_to = seventh.ends[place]

    with pytest.raises(PositionLost) as refused:
        await at(world, before("4"))

    named = refused.value.hint.partition(" is ")[2].split(", ")
    time, position, offset = named[0], named[1].split()[1], named[2].split()[1]
    for text in (time, position, offset):
        cut_point = await at(world, parse_as_of(text, now_ms=NOW_MS))
        assert cut_point.ends[place] >= seventh.ends[place]
    assert int(position.removeprefix("stream=")) <= 8


@pytest.mark.parametrize("number", [3, 9])
async def test_a_topic_that_was_made_anew_since_has_no_past_state(number: int) -> None:
    script = made_up(9, seed=4)
    world = await told(script, bytes_max=1)
    settings, _ = world.log.topics[TOPIC]
    assert (await at(world, before(str(number)))).ends[TopicPartition(TOPIC, 0)] > 0

    world.log.delete_topic(TOPIC)
    await world.log.ensure_topic(settings)

    with pytest.raises(PositionLost, match="recreated since this point in time"):
        await at(world, before(str(number)))


async def test_a_topic_whose_beginning_has_gone_tells_no_state() -> None:
    world = await told(made_up(5, seed=1), bytes_max=1)
    world.log.partitions[TopicPartition(TOPIC, 0)].start = 2

    with pytest.raises(PositionLost, match="beginning of the topic is gone"):
        await at(world, before("3"))


async def test_a_log_that_does_not_say_what_compaction_took_tells_only_what_is_recent() -> None:
    world = await told(made_up(5, seed=1), bytes_max=1)
    place = TopicPartition(TOPIC, 0)
    world.log.partitions[place].cleaned_to = -1

    with pytest.raises(PositionLost, match="does not report compaction"):
        await at(world, before("3"))
    recent = await find_cut_point(world.log, PIPELINE, before("3"), [place], is_recent=True)

    assert recent.ends[place] > 0


async def test_the_current_moment_is_everything_that_is_decided() -> None:
    script = made_up(9, seed=2)
    world = await told(script, bytes_max=1)

    cut_point = await newest_cut_point(world.log, [TopicPartition(TOPIC, 0)])

    assert await differing(world, [(cut_point, script)]) == [0]


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("42", "offset 42"),
        ("0:42,1:7", "offset 0:42,1:7"),
        ("0/16B3748", "position 0/16B3748"),
        ("stream=812", "position 812"),
        ("2023-01-31T12:00", "2023-01-31T12:00:00.000Z"),
        ("10m", "2023-11-14T22:03:20.000Z"),
    ],
)
def test_moments_are_written_in_several_ways(text: str, meant: str) -> None:
    assert str(parse_as_of(text, now_ms=NOW_MS)) == meant


def test_anything_else_is_no_moment() -> None:
    with pytest.raises(ConfigError, match="not a point in time"):
        parse_as_of("yesterday", now_ms=NOW_MS)


def test_a_time_in_the_future_is_refused() -> None:
    with pytest.raises(ConfigError, match="in the future"):
        parse_as_of("2032-01-31T12:00", now_ms=NOW_MS)


async def test_a_position_that_the_log_has_not_come_to_is_refused_until_it_has() -> None:
    script = made_up(5, seed=1)
    world = await told(script, bytes_max=1)

    with pytest.raises(ConfigError, match="has not reached this source position"):
        await at(world, before("6"))
    assert await differing(world, [(await at(world, before("5")), script)]) == [0]


@pytest.mark.parametrize("text", ["0/16B3748", "0/2"])
async def test_a_position_of_another_kind_of_source_is_refused(text: str) -> None:
    world = await told(made_up(5, seed=1), bytes_max=1)

    with pytest.raises(ConfigError, match="another form") as refused:
        await at(world, parse_as_of(text, now_ms=NOW_MS))
    assert "such as stream=" in refused.value.hint


async def test_a_source_without_positions_in_an_order_tells_none() -> None:
    world = await told(made_up(5, seed=1), bytes_max=1)

    with pytest.raises(ConfigError, match="no order"):
        await find_cut_point(world.log, "files", before("2"), [TopicPartition(TOPIC, 0)])


async def test_offsets_are_wanted_of_every_partition() -> None:
    world = await told(made_up(5, seed=1), partitions=2, bytes_max=1)

    with pytest.raises(ConfigError, match="every partition"):
        await at(world, parse_as_of("3", now_ms=NOW_MS))


BOUNDS = Bounds(start=2, stable=7, end=9, cleaned_to=-1, deletes_dropped_to=-1)


@pytest.mark.parametrize(
    ("offsets", "has_open", "problem"),
    [
        ({0: 2, 1: 7}, False, ""),
        ({0: 2, 1: 9}, True, ""),
        ({0: 2, 1: 8}, False, "the log does not have this offset"),
        ({0: 1, 1: 7}, True, "the log does not have this offset"),
        ({0: 2}, False, "the offsets do not name every partition of one topic"),
        ({-1: 2}, False, "the offsets do not name every partition of one topic"),
    ],
)
def test_offsets_are_those_of_every_partition_and_in_the_log(
    offsets: dict[int, int], has_open: bool, problem: str
) -> None:
    bounds = {TopicPartition(TOPIC, number): BOUNDS for number in (0, 1)}

    if problem:
        with pytest.raises(ConfigError, match=problem):
            given_offsets(OffsetsAsOf(offsets), bounds, has_open=has_open)
        return
    given = given_offsets(OffsetsAsOf(offsets), bounds, has_open=has_open)

    assert given == {TopicPartition(TOPIC, number): at for number, at in offsets.items()}


def test_one_offset_is_that_of_a_single_partition_and_never_of_two_topics() -> None:
    one, other = TopicPartition(TOPIC, 0), TopicPartition("other", 0)

    assert given_offsets(OffsetsAsOf({-1: 5}), {one: BOUNDS}) == {one: 5}
    with pytest.raises(ConfigError, match="every partition of one topic"):
        given_offsets(OffsetsAsOf({0: 5}), {one: BOUNDS, other: BOUNDS})
