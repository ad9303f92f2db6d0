"""One sync serves everybody who waits, and nobody's mistake leaves the others waiting."""

from pathlib import Path

from core_log.embedded import EmbeddedLog
from core_log.log import TopicPartition
from core_log.settings import BrokerSettings, TopicSettings
from tests.contract.records import batch_of

ORDERS = TopicPartition("orders", 0)


async def opened(data: Path) -> EmbeddedLog:
    log = await EmbeddedLog.open(BrokerSettings(data=data, listen="127.0.0.1:0"))
    await log.ensure_topic(TopicSettings(name="orders"))
    return log


async def test_a_waiter_that_fails_does_not_hold_up_the_others(tmp_path: Path) -> None:
    log = await opened(tmp_path)
    partition = log.running.broker.partition(*ORDERS)
    assert partition is not None

    def fail() -> None:
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
    believe, failures = partition.log.synced, iter([ZeroDivisionError()])

    def synced_but_once(job: object) -> None:
        for failure in failures:
            raise failure
        believe(job)  # type: ignore[arg-type]

    partition.log.synced = synced_but_once  # type: ignore[method-assign]
    first = log.append(ORDERS, batch_of("in the round that failed"))
    second = log.append(ORDERS, batch_of("in the next"))

    assert [await first, await second] == [0, 1]
    await log.close()
