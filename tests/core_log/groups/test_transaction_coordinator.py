"""Who may begin, add to and end a transaction, and what others are told; run after run."""

import asyncio

import pytest

from headwater.core_log.groups.transaction_coordinator import NO_PRODUCER
from headwater.core_log.groups.transactions import VERSION_2, ProducerIdentity, TransactionState
from headwater.core_log.protocol.error_codes import ErrorCode
from tests.core_log.groups.recorded_coordinator import LIMITS, T0, T1, TIMEOUT_MS, Broker


async def test_a_transaction_that_takes_too_long_is_aborted(broker: Broker) -> None:
    producer = await broker.begin()

    due_ms = broker.coordinator.next_deadline_ms()
    assert due_ms is not None
    await broker.later(due_ms - broker.world.now_ms() + TIMEOUT_MS)
    late, _ = await broker.end(producer)
    late_abort, _ = await broker.end(producer, commit=False)

    assert broker.world.open_transactions() == {T0: [], T1: []}
    assert (late, late_abort) == (ErrorCode.INVALID_TXN_STATE, ErrorCode.NONE)
    assert broker.read() == []


async def test_a_new_run_aborts_what_the_last_left_open(broker: Broker) -> None:
    old = await broker.begin()

    new = await broker.coordinator.init_producer_id("id", timeout_ms=TIMEOUT_MS)

    assert new.error is ErrorCode.NONE
    assert new.producer.producer_id == old.producer_id
    assert new.producer.epoch > old.epoch
    assert broker.world.open_transactions() == {T0: [], T1: []}
    assert (await broker.end(old))[0] is ErrorCode.PRODUCER_FENCED


async def test_the_log_holds_the_state_after_quiet(broker: Broker) -> None:
    _, following = await broker.end(await broker.begin())
    await broker.later(LIMITS.save_after_ms)
    assert broker.coordinator.next_deadline_ms() is None

    await broker.start(was_clean=False)
    error = await broker.coordinator.add_partitions("id", following, [T0], version=VERSION_2)

    assert error is ErrorCode.NONE  # nothing could have been lost, so nobody was fenced


async def test_a_clean_stop_loses_nothing(broker: Broker) -> None:
    _, following = await broker.end(await broker.begin())
    await broker.begin(following)

    await broker.coordinator.drain()
    await broker.start(was_clean=True)
    error, _ = await broker.end(following)

    assert error is ErrorCode.NONE
    assert len(broker.read()) == 4


async def test_an_id_nobody_uses_is_forgotten(broker: Broker) -> None:
    await broker.end(await broker.begin())
    await broker.later(LIMITS.save_after_ms)

    await broker.later(LIMITS.unused_ms_max)
    late = await broker.coordinator.add_partitions("id", NO_PRODUCER, [T0])
    await broker.start()
    after = await broker.coordinator.add_partitions("id", NO_PRODUCER, [T0])

    assert (late, after) == (ErrorCode.INVALID_PRODUCER_ID_MAPPING,) * 2


async def test_producer_ids_are_never_given_twice(broker: Broker) -> None:
    asked = [broker.coordinator.init_producer_id(None, timeout_ms=0) for _ in range(9)]

    answers = await asyncio.gather(*asked)

    assert all(answer.error is ErrorCode.NONE for answer in answers)
    assert len({answer.producer for answer in answers}) == 9


async def test_two_first_runs_at_once_are_one_after_the_other(broker: Broker) -> None:
    first, second = await asyncio.gather(
        broker.coordinator.init_producer_id("id", timeout_ms=TIMEOUT_MS),
        broker.coordinator.init_producer_id("id", timeout_ms=TIMEOUT_MS),
    )

    granted = [each.producer for each in (first, second) if each.error is ErrorCode.NONE]
    assert granted
    assert len(set(granted)) == len(granted)
    refused = [each.error for each in (first, second) if each.error is not ErrorCode.NONE]
    assert set(refused) <= {ErrorCode.CONCURRENT_TRANSACTIONS}


@pytest.mark.parametrize(
    ("name", "timeout_ms", "error"),
    [
        ("", TIMEOUT_MS, ErrorCode.INVALID_REQUEST),
        ("id", 0, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        ("id", LIMITS.timeout_ms_max + 1, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
    ],
)
async def test_an_invalid_request_for_a_producer_id_is_refused(
    broker: Broker, name: str, timeout_ms: int, error: ErrorCode
) -> None:
    answer = await broker.coordinator.init_producer_id(name, timeout_ms=timeout_ms)

    assert answer == (error, NO_PRODUCER)


async def test_a_fenced_producer_hears_it_as_partitions_say_it(broker: Broker) -> None:
    producer = await broker.begin()
    await broker.coordinator.init_producer_id("id", timeout_ms=TIMEOUT_MS)

    for may_add in (False, True):
        verdicts = await broker.coordinator.verify_or_add("id", *producer, [T0], may_add=may_add)
        assert verdicts == {T0: ErrorCode.INVALID_PRODUCER_EPOCH}


async def test_a_batch_that_was_not_announced_is_not_let_in(broker: Broker) -> None:
    answer = await broker.coordinator.init_producer_id("id", timeout_ms=TIMEOUT_MS)
    await broker.coordinator.add_partitions("id", answer.producer, [T0])

    verdicts = await broker.coordinator.verify_or_add(
        "id", *answer.producer, [T0, T1], may_add=False
    )

    assert verdicts == {T0: ErrorCode.NONE, T1: ErrorCode.TRANSACTION_ABORTABLE}


async def test_an_id_of_another_broker_is_not_served(broker: Broker) -> None:
    producer = await broker.begin()

    broker.coordinator.unload(0)

    assert (await broker.end(producer))[0] is ErrorCode.NOT_COORDINATOR
    answer = await broker.coordinator.init_producer_id("id", timeout_ms=TIMEOUT_MS)
    assert answer == (ErrorCode.NOT_COORDINATOR, NO_PRODUCER)


async def test_ids_are_not_served_before_they_are_recovered(broker: Broker) -> None:
    producer = await broker.begin()

    broker.coordinator.load(0)
    early, _ = await broker.end(producer)
    await broker.coordinator.recover(broker.world.open_transactions(), was_clean=False)

    assert early is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert broker.world.open_transactions() == {T0: [], T1: []}
    assert (await broker.end(producer))[0] is ErrorCode.TRANSACTION_ABORTABLE
    assert (await broker.end(producer, commit=False))[0] is ErrorCode.NONE


async def test_a_partition_of_state_that_is_new_is_served_at_once() -> None:
    broker = Broker()
    await broker.start()

    broker.coordinator.load(0)

    assert broker.coordinator.check("id") is ErrorCode.NONE


async def test_open_transactions_of_nobody_are_aborted() -> None:
    broker = Broker()
    stranger = ProducerIdentity(99, 4)
    broker.world.data[T0].append(stranger, "left behind")

    await broker.start(was_clean=False)

    assert broker.world.open_transactions() == {T0: [], T1: []}
    assert broker.read() == []


def test_states_are_stored_under_kafkas_numbers() -> None:
    assert [state.name for state in TransactionState] == [
        "EMPTY",
        "ONGOING",
        "PREPARE_COMMIT",
        "PREPARE_ABORT",
        "COMPLETE_COMMIT",
        "COMPLETE_ABORT",
        "DEAD",
        "PREPARE_EPOCH_FENCE",
    ]
