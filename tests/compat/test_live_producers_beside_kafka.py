"""Kills of the broker cost live transactional producers no more than kills of Apache Kafka do."""

import os
from pathlib import Path
from random import Random

import pytest

from tests.contract.apache_kafka import mortal_node
from tests.crash.broker_process import BrokerProcess
from tests.crash.live_producers import live_through

SEED = 15

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.skipif(os.environ.get("HEADWATER_BUDGET") != "long", reason="takes minutes"),
]


def test_no_more_live_producers_begin_anew_after_kills_than_on_kafka(tmp_path: Path) -> None:
    with mortal_node(tmp_path) as (address, node):

        def kill_and_restart() -> None:
            node.kill()
            node.start()

        theirs = live_through(address, kill_and_restart, Random(SEED))
    broker = BrokerProcess(tmp_path / "ours", tmp_path / "broker.log", {})
    try:
        broker.start()
        ours = live_through(broker.address, broker.kill_and_restart, Random(SEED))
    finally:
        broker.kill_if_running()
        broker.forget()
        broker.end_children()

    assert not theirs.faults and not ours.faults
    assert sum(ours.fenced.values()) <= sum(theirs.fenced.values()), (ours, theirs)
