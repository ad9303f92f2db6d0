"""Connections that break after any byte neither lose, repeat, tear nor reorder anything."""

import asyncio
from random import Random

import pytest

from headwater.core_log.foundation.errors import LogUnavailable
from headwater.core_log.model.log import FetchLimit, Isolation, Log, TopicPartition
from tests.contract.chaos_proxy import chaos_before
from tests.contract.conftest import Ground
from tests.contract.records import batch_of, read_all, values_in

pytestmark = pytest.mark.parametrize(
    "ground",
    ["served", pytest.param("apache kafka", marks=pytest.mark.kafka)],
    indirect=True,
)

COUNT = 25


class Refused(Exception):
    """What the tests raise inside a transaction."""


async def write(
    log: Log, name: str, random: Random, partitions: list[TopicPartition]
) -> tuple[list[str], set[str]]:
    """Transactions on all partitions: those that are certain, in order, and those that are not."""
    writer, certain, uncertain = await log.writer(name), list[str](), set[str]()
    for number in range(COUNT):
        value = f"{name}-{number}"
        try:
            async with writer.transaction() as transaction:
                if number % 2:
                    await transaction.append_each({each: batch_of(value) for each in partitions})
                else:
                    await asyncio.gather(
                        *(transaction.append(each, batch_of(value)) for each in partitions)
                    )
                if random.random() < 0.2:
                    raise Refused
            certain.append(value)
        except Refused:
            pass
        except LogUnavailable:
            uncertain.add(value)
            writer = await log.writer(name)
    return certain, uncertain


async def read(log: Log, partition: TopicPartition, end: int) -> list[str]:
    values, offset = list[str](), 0
    while offset < end:
        for part in await log.fetch(
            {partition: offset},
            limit=FetchLimit(bytes_max=2000, wait_ms_max=200),
            isolation=Isolation.COMMITTED,
        ):
            values += values_in([part])
            offset = part.next_offset
    return values


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
async def test_acknowledged_records_are_there_once_and_in_order(ground: Ground, seed: int) -> None:
    random, partitions = Random(seed), await ground.topic(partitions=2)
    async with chaos_before(ground.endpoint, random, bytes_mean=3_000) as chaos:
        log = ground.connect(dial=chaos.dial())
        names = [ground.name(name) for name in ("one", "two")]

        outcomes = await asyncio.gather(*(write(log, name, random, partitions) for name in names))
        bounds = await ground.log.bounds(partitions)
        seen = [await read(log, each, bounds[each].end) for each in partitions]

    assert chaos.cut > 5
    for values, partition in zip(seen, partitions, strict=True):
        assert values == await read_all(ground.log, partition)
        assert len(values) == len(set(values))
        for certain, uncertain in outcomes:
            mine = [value for value in values if value in {*certain, *uncertain}]
            assert [value for value in mine if value not in uncertain] == certain
        assert set(values) <= {v for certain, maybe in outcomes for v in (*certain, *maybe)}
    assert sorted(seen[0]) == sorted(seen[1])
