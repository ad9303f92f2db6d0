"""A restarted pipeline finds the position of its last commit, whatever the others are doing."""

# Positions of all pipelines share a partition, and another one's transaction may hang in it.

import asyncio

import pytest

from headwater.core_log.foundation.errors import Fenced
from headwater.core_log.model.log import Isolation, Log, TopicPartition
from tests.contract.conftest import Ground
from tests.contract.records import AT_ONCE, batch_of, read_to


async def positions_up_to(log: Log, partition: TopicPartition, end: int) -> dict[str, str]:
    """The newest committed position per pipeline; values are `pipeline=position`."""
    values = await read_to(log, partition, end)
    return dict(value.split("=") for value in values)


async def test_the_position_is_found_behind_anothers_hanging_transaction(ground: Ground) -> None:
    (positions,) = await ground.topic()
    hanging = await ground.log.writer(ground.name("other"))
    first_run = await ground.log.writer(ground.name("mine"))
    async with first_run.transaction() as transaction:
        await transaction.append(positions, batch_of("mine=1"))

    async with hanging.transaction() as others:
        await others.append(positions, batch_of("other=5"))
        async with first_run.transaction() as transaction:
            await transaction.append(positions, batch_of("mine=2"))

        await ground.log.writer(ground.name("mine"))  # the second run fences the first
        bounds = (await ground.log.bounds([positions]))[positions]
        up_to_stable = await positions_up_to(ground.log, positions, bounds.stable)
        reading = asyncio.ensure_future(positions_up_to(ground.log, positions, bounds.end))
        await asyncio.sleep(0.05)
        waited = not reading.done()

    assert up_to_stable["mine"] == "1"  # stopping there would append everything after 1 again
    assert waited  # the reader does not go on without knowing
    assert (await reading)["mine"] == "2"


async def test_an_uncommitted_position_of_a_fenced_run_is_not_found(ground: Ground) -> None:
    (positions,) = await ground.topic()
    first_run = await ground.log.writer(ground.name("mine"))
    await first_run.append(positions, batch_of("mine=1"))

    with pytest.raises(Fenced):
        async with first_run.transaction() as transaction:
            await transaction.append(positions, batch_of("mine=2"))
            await ground.log.writer(ground.name("mine"))
            bounds = (await ground.log.bounds([positions]))[positions]
            found = await positions_up_to(ground.log, positions, bounds.end)

    assert found == {"mine": "1"}


async def test_the_end_includes_open_transactions_and_the_stable_offset_does_not(
    ground: Ground,
) -> None:
    (positions,) = await ground.topic()
    writer = await ground.log.writer(ground.name("writer"))
    await ground.log.append(positions, batch_of("plain"))

    async with writer.transaction() as transaction:
        await transaction.append(positions, batch_of("open"))
        await ground.log.append(positions, batch_of("behind it"))
        during = (await ground.log.bounds([positions]))[positions]
        ahead = await ground.log.fetch(
            {positions: 0}, limit=AT_ONCE, isolation=Isolation.UNCOMMITTED
        )

    assert (during.start, during.stable, during.end) == (0, 1, 3)
    assert max(part.next_offset for part in ahead) == 3
