"""A log says how far it reaches, which offset a moment has, and what compaction took from it."""

import asyncio

from headwater.core_log.model.log import Bounds, RetainedRange
from tests.contract.conftest import Ground
from tests.contract.records import NOW_MS, batch_of


async def test_an_empty_partition_begins_and_ends_at_zero(ground: Ground) -> None:
    (partition,) = await ground.topic()

    bounds = (await ground.log.bounds([partition]))[partition]

    assert (bounds.start, bounds.stable, bounds.end) == (0, 0, 0)


async def test_bounds_move_with_what_is_appended(ground: Ground) -> None:
    zero, one = await ground.topic(partitions=2)
    await ground.log.append(one, batch_of("a", "b", "c"))

    bounds = await ground.log.bounds([zero, one])

    assert (bounds[zero].stable, bounds[zero].end) == (0, 0)
    assert (bounds[one].stable, bounds[one].end) == (3, 3)


async def test_bounds_of_nothing_are_nothing(ground: Ground) -> None:
    assert await ground.log.bounds([]) == {}


async def test_only_our_log_can_tell_what_compaction_took(ground: Ground) -> None:
    (partition,) = await ground.topic(config={"cleanup.policy": "compact"})
    await ground.log.append(partition, batch_of("a"))

    bounds = (await ground.log.bounds([partition]))[partition]

    nothing_yet = -1 if ground.kind == "apache kafka" else 0
    assert bounds == Bounds(0, 1, 1, cleaned_to=nothing_yet, deletes_dropped_to=nothing_yet)


async def test_retained_ranges_are_those_of_the_bounds(ground: Ground) -> None:
    zero, one = await ground.topic(partitions=2)
    await ground.log.append(one, batch_of("a"))

    bounds, kept = (
        await ground.log.bounds([zero, one]),
        await ground.log.retained_ranges([zero, one]),
    )

    assert kept == {
        part: RetainedRange(each.start, each.cleaned_to, each.deletes_dropped_to)
        for part, each in bounds.items()
    }
    assert await ground.log.retained_ranges([]) == {}


async def test_a_leader_epoch_ends_at_the_end_of_the_log_and_a_later_one_is_not_known(
    ground: Ground,
) -> None:
    (partition,) = await ground.topic()
    await ground.log.append(partition, batch_of("a", "b"))

    newest = (await ground.log.retained_ranges([partition]))[partition].leader_epoch
    known = await ground.log.epoch_ends({partition: max(newest, 0)})
    unknown = await ground.log.epoch_ends({partition: newest + 1_000_000_000})

    assert (newest < 0) == (ground.kind == "apache kafka")
    assert known == {partition: 2} and unknown == {partition: -1}
    assert await ground.log.epoch_ends({}) == {}


async def test_a_moment_has_the_first_offset_appended_then_or_later(ground: Ground) -> None:
    zero, one = await ground.topic(partitions=2)
    for second in range(5):
        moment = NOW_MS + 1000 * second
        await ground.log.append(zero, batch_of(f"{second}", timestamp_ms=moment))
    await ground.log.append(one, batch_of("early", timestamp_ms=NOW_MS))

    exactly = await ground.log.offsets_at([zero, one], timestamp_ms=NOW_MS + 2000)
    between = await ground.log.offsets_at([zero], timestamp_ms=NOW_MS + 2001)
    before = await ground.log.offsets_at([zero], timestamp_ms=0)
    after = await ground.log.offsets_at([zero], timestamp_ms=NOW_MS + 9000)

    assert exactly == {zero: 2, one: 1}  # the second has nothing so late: its end
    assert (between, before, after) == ({zero: 3}, {zero: 0}, {zero: 5})


async def test_a_groups_offsets_are_what_was_committed_last(ground: Ground) -> None:
    zero, one = await ground.topic(partitions=2)
    group = ground.name("group")

    before = await ground.log.committed_offsets(group)
    await ground.log.commit_offsets(group, {zero: 1, one: 2})
    await ground.log.commit_offsets(group, {zero: 5})

    assert before == {}
    assert await ground.log.committed_offsets(group) == {zero: 5, one: 2}
    assert await ground.log.committed_offsets(ground.name("another group")) == {}


async def test_groups_commit_side_by_side(ground: Ground) -> None:
    (partition,) = await ground.topic()
    groups = [ground.name(f"group{number}") for number in range(8)]

    await asyncio.gather(
        *(
            ground.log.commit_offsets(group, {partition: offset})
            for offset, group in enumerate(groups)
        )
    )

    for offset, group in enumerate(groups):
        assert await ground.log.committed_offsets(group) == {partition: offset}
