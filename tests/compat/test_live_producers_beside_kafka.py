"""What kills of the broker cost live transactional producers, beside kills of Apache Kafka."""

from pathlib import Path
from random import Random

import pytest

from tests.contract.apache_kafka import mortal_node
from tests.crash.broker_process import BrokerProcess
from tests.crash.live_producers import FENCED_MAX, LIBRDKAFKA, live_through

SEED = 15

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.long("compat"),
]


def test_producers_made_anew_after_kills_are_counted_beside_kafka(tmp_path: Path) -> None:
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

    assert not ours.faults, (ours.faults, theirs.faults)  # Kafka has torn one of aiokafka
    both = (ours.fenced, theirs.fenced)
    assert ours.count(LIBRDKAFKA) <= theirs.count(LIBRDKAFKA), both
    # A commit that aiokafka asks for while it is killed cannot be refused by a code that it knows.
    assert ours.count() <= max(theirs.count(), FENCED_MAX), both
