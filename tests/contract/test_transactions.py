"""What a transaction appends and commits becomes visible together, or not at all."""

import asyncio

import pytest

from headwater.core_log.foundation.errors import BatchTooLarge, Fenced, LogRejected, LogUnavailable
from headwater.core_log.model.log import Isolation
from tests.contract.conftest import Ground
from tests.contract.records import AT_ONCE, PATIENT, batch_of, read_all, read_to, values_in


class Refused(Exception):
    """What the tests raise inside a transaction."""


async def test_an_open_transaction_is_not_read(ground: Ground) -> None:
    (partition,) = await ground.topic()
    writer = await ground.log.writer(ground.name("writer"))

    async with writer.transaction() as transaction:
        await transaction.append(partition, batch_of("undecided"))
        await read_to(ground.log, partition, 1, isolation=Isolation.UNCOMMITTED)
        during = await ground.log.fetch(
            {partition: 0}, limit=AT_ONCE, isolation=Isolation.COMMITTED
        )
        bounds = (await ground.log.bounds([partition]))[partition]

    assert list(during) == []
    assert (bounds.stable, bounds.end) == (0, 1)
    assert await read_all(ground.log, partition) == ["undecided"]


async def test_readers_that_ask_for_it_see_undecided_batches(ground: Ground) -> None:
    (partition,) = await ground.topic()
    writer = await ground.log.writer(ground.name("writer"))

    async with writer.transaction() as transaction:
        await transaction.append(partition, batch_of("undecided"))
        during = await ground.log.fetch(
            {partition: 0}, limit=PATIENT, isolation=Isolation.UNCOMMITTED
        )

    assert values_in(during) == ["undecided"]


async def test_an_aborted_transaction_is_never_read(ground: Ground) -> None:
    (partition,) = await ground.topic()
    writer = await ground.log.writer(ground.name("writer"))
    await writer.append(partition, batch_of("before"))

    with pytest.raises(Refused):
        async with writer.transaction() as transaction:
            await transaction.append(partition, batch_of("aborted"))
            await transaction.append(partition, batch_of("aborted too"))
            raise Refused
    async with writer.transaction() as transaction:
        await transaction.append(partition, batch_of("after"))

    assert await read_all(ground.log, partition) == ["before", "after"]


async def test_aborted_batches_are_left_out_between_those_of_others(ground: Ground) -> None:
    (partition,) = await ground.topic()
    kept, dropped = [await ground.log.writer(ground.name(name)) for name in ("kept", "dropped")]

    async with kept.transaction() as good:
        with pytest.raises(Refused):
            async with dropped.transaction() as bad:
                for number in range(4):
                    await good.append(partition, batch_of(f"good {number}"))
                    await bad.append(partition, batch_of(f"bad {number}"))
                await ground.log.append(partition, batch_of("plain"))
                raise Refused

    everything = ["good 0", "good 1", "good 2", "good 3", "plain"]
    assert await read_all(ground.log, partition) == everything


async def test_readers_get_past_a_stretch_in_which_everything_was_aborted(ground: Ground) -> None:
    (partition,) = await ground.topic()
    writer = await ground.log.writer(ground.name("writer"))
    for _ in range(3):
        with pytest.raises(Refused):
            async with writer.transaction() as transaction:
                await transaction.append(partition, batch_of("aborted"))
                raise Refused
    end = (await ground.log.bounds([partition]))[partition].end

    assert await read_to(ground.log, partition, end) == []


async def test_partitions_become_visible_together(ground: Ground) -> None:
    partitions = await ground.topic(partitions=4)
    writer = await ground.log.writer(ground.name("writer"))

    async with writer.transaction() as transaction:
        for partition in partitions:
            await transaction.append(partition, batch_of(f"in {partition.partition}"))
    for partition in partitions:
        assert await read_all(ground.log, partition) == [f"in {partition.partition}"]

    with pytest.raises(Refused):
        async with writer.transaction() as transaction:
            for partition in partitions:
                await transaction.append(partition, batch_of("aborted"))
            raise Refused
    for partition in partitions:
        assert await read_all(ground.log, partition) == [f"in {partition.partition}"]


async def test_appends_side_by_side_arrive_in_the_order_they_were_made(ground: Ground) -> None:
    (partition,) = await ground.topic()
    writer = await ground.log.writer(ground.name("writer"))
    values = [str(number) for number in range(50)]

    async with writer.transaction() as transaction:
        offsets = await asyncio.gather(
            *(transaction.append(partition, batch_of(value)) for value in values)
        )

    assert offsets == sorted(offsets)
    assert await read_all(ground.log, partition) == values


async def test_batches_of_several_partitions_are_appended_together_and_in_order(
    ground: Ground,
) -> None:
    partitions = [*await ground.topic(partitions=3), *await ground.topic()]
    writer = await ground.log.writer(ground.name("writer"))

    async with writer.transaction() as transaction:
        steps = [partitions, partitions[:2], partitions[::-1], partitions[1:]]
        found = await asyncio.gather(
            *(
                transaction.append_each({each: batch_of(str(number)) for each in step})
                for number, step in enumerate(steps)
            )
        )

    for partition in partitions:
        theirs = [number for number, step in enumerate(steps) if partition in step]
        assert await read_all(ground.log, partition) == [str(number) for number in theirs]
        assert [found[number][partition] for number in theirs] == list(range(len(theirs)))


async def test_a_batch_that_waits_for_a_leader_is_not_passed_by_later_ones(
    ground: Ground,
) -> None:
    """Neither in partitions that the writer writes to for the first time, where a log takes any
    batch as the first."""
    (known,), (unknown,) = await ground.topic(), await ground.topic()
    log = ground.connect()
    writer = await log.writer(ground.name("writer"))
    await log.bounds([known])

    async with writer.transaction() as transaction:
        await asyncio.gather(
            transaction.append_each({known: batch_of("0"), unknown: batch_of("0")}),
            transaction.append(known, batch_of("1")),
            transaction.append(known, batch_of("2")),
        )

    assert await read_all(ground.log, known) == ["0", "1", "2"]


async def test_one_transaction_follows_the_other_at_once(ground: Ground) -> None:
    partitions = await ground.topic(partitions=2)
    writer = await ground.log.writer(ground.name("writer"))

    for number in range(20):
        async with writer.transaction() as transaction:
            for partition in partitions:
                await transaction.append(partition, batch_of(str(number)))

    for partition in partitions:
        assert await read_all(ground.log, partition) == [str(number) for number in range(20)]


async def test_an_empty_transaction_costs_nothing_and_means_nothing(ground: Ground) -> None:
    (partition,) = await ground.topic()
    writer = await ground.log.writer(ground.name("writer"))

    async with writer.transaction():
        pass
    with pytest.raises(Refused):
        async with writer.transaction():
            raise Refused
    await writer.append(partition, batch_of("a"))

    assert await read_all(ground.log, partition) == ["a"]


@pytest.mark.parametrize("is_together", [False, True], ids=["one by one", "together"])
async def test_a_transaction_with_a_refused_append_is_not_committed(
    ground: Ground, is_together: bool
) -> None:
    """Not even where the block goes on as if nothing had happened."""
    small, (partition,) = (
        await ground.topic(config={"max.message.bytes": "1000"}),
        await ground.topic(),
    )
    writer = await ground.log.writer(ground.name("writer"))

    with pytest.raises(LogRejected, match="aborted"):
        async with writer.transaction() as transaction:
            batches = {partition: batch_of("half"), small[0]: batch_of("x" * 2000)}
            with pytest.raises(BatchTooLarge):
                if is_together:
                    await transaction.append_each(batches)
                else:
                    for each, batch in batches.items():
                        await transaction.append(each, batch)
    await writer.append(partition, batch_of("whole"))

    assert await read_all(ground.log, partition) == ["whole"]


async def test_an_ended_transaction_takes_nothing_more(ground: Ground) -> None:
    (partition,) = await ground.topic()
    writer = await ground.log.writer(ground.name("writer"))
    async with writer.transaction() as transaction:
        await transaction.append(partition, batch_of("in time"))

    with pytest.raises(LogRejected, match="has ended"):
        await transaction.append(partition, batch_of("late"))

    assert await read_all(ground.log, partition) == ["in time"]


async def test_a_writer_has_one_transaction_at_a_time(ground: Ground) -> None:
    (partition,) = await ground.topic()
    writer = await ground.log.writer(ground.name("writer"))

    async with writer.transaction() as transaction:
        await transaction.append(partition, batch_of("a"))
        with pytest.raises(LogRejected, match="transaction open"):
            async with writer.transaction():
                pass

    assert await read_all(ground.log, partition) == ["a"]


async def test_a_writer_appends_outside_transactions_as_well(ground: Ground) -> None:
    (partition,) = await ground.topic()
    writer = await ground.log.writer(ground.name("writer"))

    await asyncio.gather(*(writer.append(partition, batch_of(value)) for value in "abc"))

    assert await read_all(ground.log, partition) == ["a", "b", "c"]


async def test_offsets_are_committed_with_the_batches(ground: Ground) -> None:
    (partition,) = await ground.topic()
    name, group = ground.name("writer"), ground.name("group")
    writer = await ground.log.writer(name)

    async with writer.transaction() as transaction:
        await transaction.append(partition, batch_of("a"))
        await transaction.commit_offsets(group, {partition: 7})
    await ground.log.writer(name)  # as a restarted worker does before it reads

    assert await ground.log.committed_offsets(group) == {partition: 7}


async def test_offsets_being_committed_are_waited_for(ground: Ground) -> None:
    (partition,) = await ground.topic()
    writer, group = await ground.log.writer(ground.name("writer")), ground.name("group")
    await ground.log.commit_offsets(group, {partition: 0})

    for offset in range(1, 10):
        async with writer.transaction() as transaction:
            await transaction.commit_offsets(group, {partition: offset})
        assert await ground.log.committed_offsets(group) == {partition: offset}


async def test_offsets_are_aborted_with_the_batches(ground: Ground) -> None:
    (partition,) = await ground.topic()
    writer, group = await ground.log.writer(ground.name("writer")), ground.name("group")
    await ground.log.commit_offsets(group, {partition: 3})

    with pytest.raises(Refused):
        async with writer.transaction() as transaction:
            await transaction.commit_offsets(group, {partition: 7})
            raise Refused

    assert await ground.log.committed_offsets(group) == {partition: 3}


async def test_a_newer_writer_of_the_name_fences_the_older(ground: Ground) -> None:
    (partition,) = await ground.topic()
    name = ground.name("writer")
    old = await ground.log.writer(name)
    await old.append(partition, batch_of("old"))
    new = await ground.log.writer(name)

    with pytest.raises(Fenced):
        await old.append(partition, batch_of("too late"))
    with pytest.raises(Fenced):
        async with old.transaction() as transaction:
            await transaction.append(partition, batch_of("too late"))
    await new.append(partition, batch_of("new"))

    assert await read_all(ground.log, partition) == ["old", "new"]


async def test_a_newer_writer_aborts_what_the_older_left_open(ground: Ground) -> None:
    """Once it is opened, what its predecessor had not committed never will be."""
    (partition,) = await ground.topic()
    name = ground.name("writer")
    old = await ground.log.writer(name)

    with pytest.raises(Fenced):
        async with old.transaction() as transaction:
            await transaction.append(partition, batch_of("left open"))
            new = await ground.log.writer(name)
    await new.append(partition, batch_of("new"))

    assert await read_all(ground.log, partition) == ["new"]


async def test_writers_of_different_names_do_not_disturb_each_other(ground: Ground) -> None:
    (partition,) = await ground.topic()
    one, two = [await ground.log.writer(ground.name(name)) for name in ("one", "two")]

    async with one.transaction() as first, two.transaction() as second:
        await first.append(partition, batch_of("one"))
        await second.append(partition, batch_of("two"))

    assert await read_all(ground.log, partition) == ["one", "two"]


@pytest.mark.slow
async def test_a_transaction_that_takes_too_long_is_aborted_and_may_be_tried_again(
    ground: Ground,
) -> None:
    """The cluster ends it, so that readers are not held up for ever; nobody took over, so the
    writer is not fenced for good."""
    (partition,) = await ground.topic()
    log = ground.connect(transaction_timeout_ms=600)
    writer = await log.writer(ground.name("writer"))

    with pytest.raises(LogUnavailable, match="aborted the transaction"):
        async with writer.transaction() as transaction:
            offset = await transaction.append(partition, batch_of("slow"))
            assert await read_to(ground.log, partition, offset + 1) == []
    async with writer.transaction() as transaction:
        await transaction.append(partition, batch_of("again"))

    assert await read_all(ground.log, partition) == ["again"]
