"""Lost answers neither lose nor repeat what a writer wrote, whichever answers they are."""

import asyncio

import pytest

from headwater.core_log.foundation.errors import LogUnavailable
from headwater.core_log.links.connection import Channel, connect
from tests.contract.channels import (
    LosesEvery,
    OnAnswer,
    TamperedChannel,
    tampered,
    without_features,
)
from tests.contract.conftest import Ground
from tests.contract.records import batch_of, read_all

PRODUCE, FETCH, LIST_OFFSETS, METADATA = 0, 1, 2, 3
FIND_COORDINATOR, INIT_PRODUCER_ID, ADD_PARTITIONS, ADD_OFFSETS, END_TXN = 10, 22, 24, 25, 26
TXN_OFFSET_COMMIT = 28
WRITING = (PRODUCE, INIT_PRODUCER_ID, ADD_PARTITIONS, ADD_OFFSETS, END_TXN, TXN_OFFSET_COMMIT)


def both(*steps: OnAnswer) -> OnAnswer:
    def on_answer(api_key: int, answer: memoryview) -> memoryview | None:
        passed: memoryview | None = answer
        for step in steps:
            passed = passed if passed is None else step(api_key, passed)
        return passed

    return on_answer


class KeepsBack(TamperedChannel):
    """Requests to end a transaction never arrive."""

    def __init__(self, inner: Channel, kept: asyncio.Event) -> None:
        super().__init__(inner, lambda _, answer: answer)
        self._kept = kept

    def ask(self, frame: bytearray, correlation_id: int) -> "asyncio.Future[memoryview]":
        if int.from_bytes(frame[4:6], "big") == END_TXN:
            self._kept.set()
            return asyncio.get_running_loop().create_future()
        return super().ask(frame, correlation_id)


pytestmark = pytest.mark.parametrize(
    "ground",
    ["served", pytest.param("apache kafka", marks=pytest.mark.kafka)],
    indirect=True,  # calls within a process lose no answers
)


@pytest.mark.parametrize("k", [2, 3, 5])
async def test_a_batch_whose_acknowledgement_is_lost_is_written_once(
    ground: Ground, k: int
) -> None:
    (partition,) = await ground.topic()
    losses = LosesEvery(k, PRODUCE)
    writer = await ground.connect(dial=tampered(losses)).writer(ground.name("writer"))
    values = [str(number) for number in range(12)]

    async with writer.transaction() as transaction:
        offsets = [await transaction.append(partition, batch_of(value)) for value in values]

    assert losses.lost >= 2
    assert offsets == list(range(12))  # duplicates are answered with the original offset
    assert await read_all(ground.log, partition) == values


@pytest.mark.parametrize("k", [2, 3, 7])
async def test_batches_in_flight_together_keep_their_order(ground: Ground, k: int) -> None:
    (partition,) = await ground.topic()
    losses = LosesEvery(k, PRODUCE)
    writer = await ground.connect(dial=tampered(losses)).writer(ground.name("writer"))
    values = [str(number) for number in range(40)]

    async with writer.transaction() as transaction:
        offsets = await asyncio.gather(
            *(transaction.append(partition, batch_of(value)) for value in values)
        )

    assert losses.lost >= 2
    assert offsets == list(range(40))
    assert await read_all(ground.log, partition) == values


@pytest.mark.slow
@pytest.mark.parametrize("k", [2, 3, 5])
@pytest.mark.parametrize("version", [1, 2])
async def test_transactions_are_whole_whatever_is_lost(
    ground: Ground, k: int, version: int
) -> None:
    zero, one = await ground.topic(partitions=2)
    losses, group = LosesEvery(k, *WRITING), ground.name("group")
    dial = tampered(losses if version == 2 else both(without_features, losses))
    name = ground.name("writer")
    writer = await ground.connect(dial=dial).writer(name)

    for number in range(10):
        async with writer.transaction() as transaction:
            await transaction.append(zero, batch_of(str(number)))
            await transaction.append(one, batch_of(str(number)))
            await transaction.commit_offsets(group, {zero: number})
    await ground.log.writer(name)

    assert losses.lost >= 5
    assert writer.is_exactly_once == (version == 2)
    for partition in (zero, one):
        assert await read_all(ground.log, partition) == [str(number) for number in range(10)]
    assert await ground.log.committed_offsets(group) == {zero: 9}


@pytest.mark.slow
async def test_reading_goes_on_when_answers_are_lost(ground: Ground) -> None:
    (partition,) = await ground.topic()
    values = [str(number) for number in range(10)]
    for value in values:
        await ground.log.append(partition, batch_of(value))
    losses = LosesEvery(3, FETCH, LIST_OFFSETS, METADATA, FIND_COORDINATOR)

    log = ground.connect(dial=tampered(losses))

    assert await read_all(log, partition) == values
    assert await read_all(log, partition) == values
    assert await log.committed_offsets(ground.name("group")) == {}
    assert losses.lost >= 2


async def test_a_lost_acknowledgement_without_identity_means_a_second_copy(
    ground: Ground,
) -> None:
    """What the log's own `append` promises is at least once, and this is why."""
    (partition,) = await ground.topic()
    log = ground.connect(dial=tampered(LosesEvery(2, PRODUCE)))

    for value in "abc":
        await log.append(partition, batch_of(value))

    assert sorted(set(await read_all(ground.log, partition))) == ["a", "b", "c"]
    assert len(await read_all(ground.log, partition)) > 3


async def test_a_writer_that_is_closed_ends_a_transaction_whose_end_is_unknown(
    ground: Ground,
) -> None:
    (partition,) = await ground.topic()
    kept = asyncio.Event()

    async def dial(host: str, port: int) -> Channel:
        return KeepsBack(await connect(host, port, response_bytes_max=1 << 30), kept)

    writer = await ground.connect(dial=dial).writer(ground.name("writer"))

    async def write() -> None:
        async with writer.transaction() as transaction:
            await transaction.append(partition, batch_of("1"))

    writing = asyncio.create_task(write())
    await kept.wait()
    writing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await writing
    await writer.close()

    bound = (await ground.log.bounds([partition]))[partition]
    is_ours = ground.kind == "served"  # Apache Kafka writes its markers a moment later
    assert bound.stable == bound.end or not is_ours
    assert await read_all(ground.log, partition) == []
    with pytest.raises(LogUnavailable):
        await write()
