"""Live transactional producers go on after their broker was killed, and after its disk failed."""

import errno
import os
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from tests.crash.broker_process import BrokerProcess
from tests.crash.broker_thread import BrokerThread
from tests.crash.live_producers import FENCED_MAX, LIBRDKAFKA, live_through

pytestmark = [
    pytest.mark.long("crash"),
]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    broker = BrokerProcess(tmp_path / "data", tmp_path / "broker.log", {})
    try:
        yield broker
    finally:
        broker.kill_if_running()
        broker.forget()
        broker.end_children()


@pytest.fixture
def broker_on_bad_disk(tmp_path: Path) -> Iterator[BrokerThread]:
    broker = BrokerThread(tmp_path / "data", {})
    try:
        yield broker
    finally:
        broker.files.fault = None
        broker.close()


def test_no_more_live_producers_are_fenced_by_kills_than_on_kafka(broker: BrokerProcess) -> None:
    broker.start()

    survivors = live_through(broker.address, broker.kill_and_restart, Random(15))

    assert not survivors.faults
    assert survivors.count() <= FENCED_MAX and not survivors.count(LIBRDKAFKA), survivors.fenced


class OneFailedSync:
    """Of a partition that producers write to."""

    def __init__(self, name: str) -> None:
        self._name, self.is_over = name, False

    def __call__(self, operation: str, path: Path) -> None:
        if operation == "sync" and path.parent.name.startswith(self._name) and not self.is_over:
            self.is_over = True
            raise OSError(errno.EIO, os.strerror(errno.EIO))


@pytest.mark.parametrize("name", ["moved-", "__consumer_offsets-", "__transaction_state-"])
def test_no_live_producer_is_fenced_by_a_failed_sync(
    broker_on_bad_disk: BrokerThread, name: str
) -> None:
    broker, faults = broker_on_bad_disk, list[OneFailedSync]()
    broker.start()

    def fail() -> None:
        broker.files.fault = fault = OneFailedSync(name)
        faults.append(fault)

    survivors = live_through(broker.address, fail, Random(15))

    assert all(fault.is_over for fault in faults)
    assert not survivors.faults
    assert not survivors.count(), survivors.fenced
