"""One sync serves everybody who waits, and nobody's mistake leaves the others waiting."""

import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from headwater.core_log.broker.lifecycle import RunningBroker
from headwater.core_log.embedded import EmbeddedLog
from headwater.core_log.foundation.settings import BrokerSettings, TopicSettings
from headwater.core_log.model.log import TopicPartition
from headwater.core_log.protocol.error_codes import ErrorCode
from headwater.core_log.storage.files import OsFiles
from tests.contract.records import batch_of
from tests.fakes import FaultyFiles, MemoryFiles

ORDERS = TopicPartition("orders", 0)


async def opened(data: Path) -> EmbeddedLog:
    log = await EmbeddedLog.open(BrokerSettings(data=data, listen="127.0.0.1:0"))
    await log.ensure_topic(TopicSettings(name="orders"))
    return log


async def test_a_waiter_that_fails_does_not_hold_up_the_others(tmp_path: Path) -> None:
    log = await opened(tmp_path)
    partition = log.running.broker.partition(*ORDERS)
    assert partition is not None

    def fail(_: ErrorCode) -> None:
        raise ZeroDivisionError

    partition.when_committed(1, fail)
    offset = await log.append(ORDERS, batch_of("kept"))
    again = await log.append(ORDERS, batch_of("kept too"))

    assert (offset, again) == (0, 1)
    await log.close()


async def test_a_round_that_ends_unexpectedly_is_made_up_for(tmp_path: Path) -> None:
    log = await opened(tmp_path)
    broker = log.running.broker
    partition = broker.partition(*ORDERS)
    assert partition is not None
    believe, failures = partition.log.finish_sync, iter([ZeroDivisionError()])

    def synced_but_once(job: object) -> None:
        for failure in failures:
            raise failure
        believe(job)  # type: ignore[arg-type]

    partition.log.finish_sync = synced_but_once  # type: ignore[method-assign]
    first = log.append(ORDERS, batch_of("in the round that failed"))
    second = log.append(ORDERS, batch_of("in the next"))

    assert [await first, await second] == [0, 1]
    await log.close()


async def test_the_marker_of_a_transaction_goes_along_with_the_next_sync(tmp_path: Path) -> None:
    files, synced = FaultyFiles(OsFiles()), list[str]()

    def note(operation: str, path: Path) -> None:
        if operation == "sync" and path.suffix == ".log":
            synced.append(path.parent.name)

    settings = BrokerSettings(data=tmp_path, listen="127.0.0.1:0", flush_wait_ms_max=0)
    log = EmbeddedLog(await RunningBroker.start(settings, files=files))
    await log.ensure_topic(TopicSettings(name="orders"))
    writer = await log.writer("w")

    files.fault = note
    for number in range(20):
        async with writer.transaction() as transaction:
            await transaction.append(ORDERS, batch_of(f"order {number}"))
    files.heal()

    # One for each, and a few more where the machine is so busy that each seems to be the last.
    assert 20 <= synced.count("orders-0") < 30
    await log.close()


async def on_a_disk(data: Path, fault: Callable[[str, Path], None]) -> EmbeddedLog:
    """Nothing but what waits for the disk is synced there."""
    files = FaultyFiles(MemoryFiles())
    settings = BrokerSettings(data=data, listen="127.0.0.1:0", flush_wait_ms_max=60_000)
    log = EmbeddedLog(await RunningBroker.start(settings, files=files))
    await log.ensure_topic(TopicSettings(name="orders"))
    files.fault = fault
    return log


@pytest.mark.slow
async def test_a_quick_disk_is_synced_by_the_loop_and_a_slow_one_by_threads(tmp_path: Path) -> None:
    were_by_the_loop, seconds = list[bool](), 0.0

    def note(operation: str, path: Path) -> None:
        if operation == "sync" and path.parent.name == "orders-0":
            were_by_the_loop.append(threading.current_thread() is threading.main_thread())
            time.sleep(seconds)

    log = await on_a_disk(tmp_path, note)
    for number in range(20):
        await log.append(ORDERS, batch_of(f"order {number}"))
    quick, seconds = were_by_the_loop[:], 0.005
    were_by_the_loop.clear()
    for number in range(20):
        await log.append(ORDERS, batch_of(f"order {number}"))

    assert sum(quick) > 10, "but for moments at which the machine is busy"
    assert sum(were_by_the_loop) <= 1, "the first one is not known to be slow"
    await log.close()


@pytest.mark.slow
async def test_a_quick_disk_has_a_transaction_before_its_end_asks_for_it(tmp_path: Path) -> None:
    log = await on_a_disk(tmp_path, lambda operation, path: None)
    partition = log.running.broker.partition(*ORDERS)
    assert partition is not None
    writer, were_settled = await log.writer("w"), list[bool]()

    for number in range(20):
        async with writer.transaction() as transaction:
            await transaction.append(ORDERS, batch_of(f"order {number}"))
            await log.bounds([ORDERS])  # a turn of the loop later
            were_settled.append(partition.log.settled_offset == partition.log.end_offset)

    assert sum(were_settled) > 10, "but for moments at which the machine is busy"
    await log.close()


async def test_a_disk_works_at_all_partitions_of_a_round_at_once(tmp_path: Path) -> None:
    operations = list[tuple[str, str]]()

    def note(operation: str, path: Path) -> None:
        if path.suffix == ".log" and path.parent.name.startswith("orders"):
            operations.append((operation, path.parent.name))

    log = await on_a_disk(tmp_path, note)
    several = [TopicPartition(name, 0) for name in ("orders", "orders2", "orders3")]
    await log.ensure_topic(*(TopicSettings(name=place.topic) for place in several))
    writer, rounds = await log.writer("w"), list[list[str]]()
    for number in range(20):
        operations.clear()
        async with writer.transaction() as transaction:
            await transaction.append_each({place: batch_of(f"{number}") for place in several})
        rounds.append([operation for operation, _ in operations if "sync" in operation])

    quick = [each for each in rounds if each[:3] == ["begin sync"] * 3]
    assert len(quick) > 10, "but for moments at which the machine is busy"
    assert all(each[3:6] == ["sync"] * 3 for each in quick)
    await log.close()
