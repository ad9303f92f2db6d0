"""Without transaction.version 2 transactions hold as well, and the writer says at least once."""

import logging

import pytest

from headwater.core_log.client import KafkaLog
from headwater.core_log.foundation.errors import BatchTooLarge, Fenced, LogRejected, LogUnavailable
from tests.contract.channels import tampered, without_features
from tests.contract.conftest import Ground
from tests.contract.records import batch_of, read_all, read_to

pytestmark = pytest.mark.parametrize(
    "ground",
    ["served", pytest.param("apache kafka", marks=pytest.mark.kafka)],
    indirect=True,
)


class Refused(Exception):
    """What the tests raise inside a transaction."""


def older(ground: Ground, **settings: object) -> KafkaLog:
    return ground.connect(dial=tampered(without_features), **settings)


async def test_the_writer_says_which_guarantee_it_gives(
    ground: Ground, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        new = await ground.client.writer(ground.name("new"))
        assert not caplog.records
        old = await older(ground).writer(ground.name("old"))

    assert (new.is_exactly_once, old.is_exactly_once) == (True, False)
    assert "at least once" in caplog.text


async def test_transactions_commit_and_abort(ground: Ground) -> None:
    zero, one = await ground.topic(partitions=2)
    writer, group = await older(ground).writer(ground.name("writer")), ground.name("group")
    await ground.log.commit_offsets(group, {zero: 0})

    for number in range(6):
        try:
            async with writer.transaction() as transaction:
                await transaction.append(zero, batch_of(str(number)))
                await transaction.append(one, batch_of(str(number)))
                await transaction.commit_offsets(group, {zero: number})
                if number % 2:
                    raise Refused
        except Refused:
            pass

    assert await read_all(ground.log, zero) == ["0", "2", "4"]
    assert await read_all(ground.log, one) == ["0", "2", "4"]
    assert await ground.log.committed_offsets(group) == {zero: 4}


async def test_sequences_stay_right_after_a_batch_was_refused(ground: Ground) -> None:
    """The epoch is renewed, since nobody knows which sequences were used."""
    (partition,) = await ground.topic(config={"max.message.bytes": "1000"})
    writer = await older(ground).writer(ground.name("writer"))
    await writer.append(partition, batch_of("before"))

    with pytest.raises(LogRejected, match="aborted"):
        async with writer.transaction() as transaction:
            await transaction.append(partition, batch_of("aborted"))
            with pytest.raises(BatchTooLarge):
                await transaction.append(partition, batch_of("x" * 2000))
    await writer.append(partition, batch_of("after"))

    assert await read_all(ground.log, partition) == ["before", "after"]


async def test_a_newer_writer_fences_the_older(ground: Ground) -> None:
    (partition,) = await ground.topic()
    log, name = older(ground), ground.name("writer")
    old = await log.writer(name)

    with pytest.raises(Fenced):
        async with old.transaction() as transaction:
            await transaction.append(partition, batch_of("left open"))
            new = await log.writer(name)
    await new.append(partition, batch_of("new"))

    assert await read_all(ground.log, partition) == ["new"]


@pytest.mark.slow
async def test_a_transaction_that_takes_too_long_may_be_tried_again(ground: Ground) -> None:
    (partition,) = await ground.topic()
    writer = await older(ground, transaction_timeout_ms=600).writer(ground.name("writer"))

    with pytest.raises(LogUnavailable, match="aborted the transaction"):
        async with writer.transaction() as transaction:
            offset = await transaction.append(partition, batch_of("slow"))
            assert await read_to(ground.log, partition, offset + 1) == []
    async with writer.transaction() as transaction:
        await transaction.append(partition, batch_of("again"))

    assert await read_all(ground.log, partition) == ["again"]
