"""A commit costs two disk rounds, is answered after the second, and survives whoever gives up."""

import asyncio
from collections.abc import Collection
from random import Random

import pytest

from core_log.errors import StorageFailed
from core_log.groups.transaction_coordinator import (
    NOBODY,
    TransactionCoordinator,
    TransactionLimits,
)
from core_log.groups.transactions import (
    VERSION_1,
    VERSION_2,
    ProducerIdentity,
    TransactionState,
)
from core_log.log import TopicPartition
from core_log.protocol.error_codes import ErrorCode
from core_log.state_log import StateLog
from tests.core_log.groups.simulated_world import (
    SimulatedPartition,
    SimulatedPartitions,
    SimulatedStateLog,
    StoredBytes,
    World,
)

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
TIMEOUT_MS = 60_000
LIMITS = TransactionLimits(save_after_ms=1_000, retry_ms=100)


class WatchedLog(SimulatedStateLog):
    """Writes down each disk round, and fails or waits when told to."""

    def __init__(self, world: World, stored: StoredBytes, events: list[str]) -> None:
        super().__init__(world, stored)
        self.events, self.fails_now = events, False
        self.is_free = asyncio.Event()
        self.is_free.set()

    async def durable(self, end_offset: int) -> None:
        await self.is_free.wait()
        if self.fails_now:
            raise StorageFailed("the disk refuses")
        self.events.append("decision on disk")
        await super().durable(end_offset)


class WatchedPartitions(SimulatedPartitions):
    """Writes down each disk round and each marker, and refuses those it is told to."""

    def __init__(self, world: World, events: list[str]) -> None:
        super().__init__(world)
        self.world, self.events = world, events
        self.fails_now = False
        self.refused: set[TopicPartition] = set()

    async def sync(self, partitions: Collection[TopicPartition]) -> None:
        if self.fails_now:
            raise StorageFailed("the disk refuses")
        self.events.append(f"sync {[each.partition for each in sorted(partitions)]}")
        await super().sync(partitions)

    async def write_markers(
        self,
        producer_id: int,
        producer_epoch: int,
        *,
        commit: bool,
        coordinator_epoch: int,
        partitions: Collection[TopicPartition],
    ) -> Collection[TopicPartition]:
        self.events.append("commit" if commit else "abort")
        left = set(partitions) & self.refused
        await super().write_markers(
            producer_id,
            producer_epoch,
            commit=commit,
            coordinator_epoch=coordinator_epoch,
            partitions=set(partitions) - left,
        )
        return left


class Broker:
    """A coordinator over one partition of state and two of data."""

    def __init__(self) -> None:
        self.world = World(Random(3))
        self.world.data = {T0: SimulatedPartition(), T1: SimulatedPartition()}
        self.events: list[str] = []
        self.stored = StoredBytes()

    async def start(self, *, was_clean: bool = True) -> None:
        self.log = WatchedLog(self.world, self.stored, self.events)
        self.partitions = WatchedPartitions(self.world, self.events)
        self.coordinator = TransactionCoordinator(
            partition_count=1,
            open_state_log=self.open_log,
            partitions=self.partitions,
            allocate_producer_ids=self.world.allocate_producer_ids,
            clock=self.world,
            limits=LIMITS,
        )
        self.coordinator.load(0)
        await self.coordinator.recover(self.world.open_transactions(), was_clean=was_clean)
        self.events.clear()

    def open_log(self, index: int) -> StateLog:
        return self.log

    async def begin(self, producer: ProducerIdentity | None = None) -> ProducerIdentity:
        """A transaction with a batch in each partition."""
        if producer is None:
            answer = await self.coordinator.init_producer_id("id", timeout_ms=TIMEOUT_MS)
            producer = answer.producer
        verdicts = await self.coordinator.verify_or_add("id", *producer, [T0, T1], may_add=True)
        assert set(verdicts.values()) == {ErrorCode.NONE}
        for at in (T0, T1):
            self.world.data[at].append(producer, f"{producer} in {at}")
        self.events.clear()
        return producer

    async def end(
        self, producer: ProducerIdentity, *, commit: bool = True, version: int = VERSION_2
    ) -> tuple[ErrorCode, ProducerIdentity]:
        return await self.coordinator.end("id", producer, commit=commit, version=version)

    async def later(self, ms: int) -> None:
        self.world.now_ms_value += ms
        await self.coordinator.tick(self.world.now_ms())

    def read(self) -> list[str]:
        return [batch for partition in self.world.data.values() for batch in partition.committed()]


@pytest.fixture
async def broker() -> Broker:
    broker = Broker()
    await broker.start()
    return broker


async def turns() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def test_a_commit_takes_two_disk_rounds(broker: Broker) -> None:
    producer = await broker.begin()

    error, following = await broker.end(producer)

    assert error is ErrorCode.NONE
    assert following == ProducerIdentity(producer.producer_id, producer.epoch + 1)
    assert broker.events == ["sync [0, 1]", "decision on disk", "commit"]
    assert len(broker.read()) == 2


async def test_the_next_transaction_begins_without_a_disk_round(broker: Broker) -> None:
    _, following = await broker.end(await broker.begin())
    broker.events.clear()

    verdicts = await broker.coordinator.verify_or_add("id", *following, [T0], may_add=True)
    begun = list(broker.events)
    error, _ = await broker.end(following)

    assert verdicts == {T0: ErrorCode.NONE}
    assert begun == []
    assert error is ErrorCode.NONE
    assert broker.events == ["sync [0, 1]", "decision on disk", "commit"]


async def test_a_client_of_version_1_has_its_next_transaction_recorded_first(
    broker: Broker,
) -> None:
    producer = await broker.begin()
    await broker.end(producer, version=VERSION_1)
    broker.events.clear()

    error = await broker.coordinator.add_partitions("id", producer, [T0], version=VERSION_1)

    assert error is ErrorCode.NONE
    assert broker.events == ["sync [0, 1]", "decision on disk"]


async def test_an_abort_does_not_wait_for_the_data(broker: Broker) -> None:
    producer = await broker.begin()

    error, _ = await broker.end(producer, commit=False)

    assert error is ErrorCode.NONE
    assert broker.events == ["decision on disk", "abort"]
    assert broker.read() == []


async def test_while_one_request_decides_others_are_told_to_wait(broker: Broker) -> None:
    producer = await broker.begin()
    broker.log.is_free.clear()
    ending = asyncio.ensure_future(broker.end(producer))
    await turns()

    twice, _ = await broker.end(producer)
    added = await broker.coordinator.add_partitions("id", producer, [T0], version=VERSION_2)
    begun = await broker.coordinator.init_producer_id("id", timeout_ms=TIMEOUT_MS)
    was_early = ending.done()
    broker.log.is_free.set()

    assert (twice, added) == (ErrorCode.CONCURRENT_TRANSACTIONS,) * 2
    assert begun == (ErrorCode.CONCURRENT_TRANSACTIONS, NOBODY)
    assert not was_early
    assert (await ending)[0] is ErrorCode.NONE


async def test_a_commit_that_finds_no_disk_decides_nothing(broker: Broker) -> None:
    producer = await broker.begin()
    broker.partitions.fails_now = True

    refused, _ = await broker.end(producer)
    broker.partitions.fails_now = False
    granted, _ = await broker.end(producer)

    assert refused is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert granted is ErrorCode.NONE
    assert len(broker.read()) == 2


async def test_a_decision_that_is_not_known_to_be_on_disk_waits_for_its_fate(
    broker: Broker,
) -> None:
    producer = await broker.begin()
    broker.log.fails_now = True

    refused, _ = await broker.end(producer)
    other_way, _ = await broker.end(producer, commit=False)
    broker.log.fails_now = False
    await broker.later(LIMITS.retry_ms)

    assert refused is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert other_way is ErrorCode.CONCURRENT_TRANSACTIONS
    assert len(broker.read()) == 2
    assert (await broker.end(producer))[0] is ErrorCode.NONE


async def test_a_client_that_gives_up_does_not_hold_up_its_transaction(broker: Broker) -> None:
    producer = await broker.begin()
    broker.log.is_free.clear()
    ending = asyncio.ensure_future(broker.end(producer))
    await turns()

    ending.cancel()
    await turns()
    broker.log.is_free.set()
    await broker.later(LIMITS.retry_ms)

    assert len(broker.read()) == 2
    assert (await broker.end(producer))[0] is ErrorCode.NONE


async def test_a_marker_that_cannot_be_written_is_tried_again(broker: Broker) -> None:
    producer = await broker.begin()
    broker.partitions.refused = {T1}

    error, following = await broker.end(producer)
    seen = broker.read()
    early, _ = await broker.coordinator.init_producer_id("id", timeout_ms=TIMEOUT_MS)
    begun = await broker.coordinator.verify_or_add("id", *following, [T1], may_add=True)
    broker.partitions.refused = set()
    await broker.later(LIMITS.retry_ms)

    assert (error, len(seen)) == (ErrorCode.NONE, 1)
    assert early is ErrorCode.CONCURRENT_TRANSACTIONS
    assert begun == {T1: ErrorCode.CONCURRENT_TRANSACTIONS}
    assert len(broker.read()) == 2


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


async def test_after_quiet_the_log_says_what_is_so(broker: Broker) -> None:
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
    late = await broker.coordinator.add_partitions("id", NOBODY, [T0])
    await broker.start()
    after = await broker.coordinator.add_partitions("id", NOBODY, [T0])

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
async def test_what_makes_no_sense_is_refused(
    broker: Broker, name: str, timeout_ms: int, error: ErrorCode
) -> None:
    answer = await broker.coordinator.init_producer_id(name, timeout_ms=timeout_ms)

    assert answer == (error, NOBODY)


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
    assert answer == (ErrorCode.NOT_COORDINATOR, NOBODY)


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


async def test_what_a_failed_disk_may_have_lost_cannot_be_committed(broker: Broker) -> None:
    producer = await broker.begin()
    broker.world.data[T0].entries.clear()

    await broker.coordinator.on_partition_reopened(T0, [])
    refused, _ = await broker.end(producer)
    await broker.later(0)
    lost, _ = await broker.end(producer)
    aborted, _ = await broker.end(producer, commit=False)

    assert refused is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert (lost, aborted) == (ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.NONE)
    assert broker.world.open_transactions() == {T0: [], T1: []}
    assert broker.read() == []


async def test_a_marker_that_a_failed_disk_lost_is_written_again(broker: Broker) -> None:
    producer = await broker.begin()
    await broker.end(producer)
    del broker.world.data[T0].entries[-1]

    await broker.coordinator.on_partition_reopened(T0, [producer])

    assert len(broker.read()) == 2
