"""Live transactional producers go on after their broker was killed, as they do on Kafka."""

import os
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from tests.crash.broker_process import BrokerProcess
from tests.crash.live_producers import live_through_kills

FENCED_MAX = 4
"""The most that was seen of Apache Kafka 4.3 under such a load, in eight kills of it."""

pytestmark = [
    pytest.mark.crash,
    pytest.mark.skipif(os.environ.get("HEADWATER_BUDGET") != "long", reason="takes a minute"),
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


def test_no_more_live_producers_are_fenced_by_kills_than_on_kafka(broker: BrokerProcess) -> None:
    broker.start()

    def kill_and_restart() -> None:
        broker.kill()
        broker.forget()
        broker.start()

    survivors = live_through_kills(broker.address, kill_and_restart, Random(15))

    assert not survivors.faults
    assert sum(survivors.fenced.values()) <= FENCED_MAX, survivors.fenced
