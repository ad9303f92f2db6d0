"""Kafka Connect 4.3 works on this broker: a file in, a topic, a file out; alone and distributed."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.compat.connect_worker import LINES, ConnectWorker
from tests.crash.broker_process import BrokerProcess

pytestmark = [pytest.mark.compat, pytest.mark.kafka]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    process = BrokerProcess(
        tmp_path / "data", tmp_path / "broker.log", {"internal_partitions": "2"}
    )
    process.start()
    yield process
    process.stop()


def test_a_file_passes_through_a_topic_into_another_file(
    broker: BrokerProcess, tmp_path: Path
) -> None:
    worker = ConnectWorker(tmp_path, broker.address)

    with worker.standalone():
        worker.wait_until(lambda: len(worker.lines()) >= len(LINES))
        worker.append("one more")
        worker.wait_until(lambda: len(worker.lines()) > len(LINES))

    assert worker.lines() == [*LINES, "one more"]


def test_a_distributed_worker_keeps_its_state_in_compacted_topics_and_goes_on_after_a_kill(
    broker: BrokerProcess, tmp_path: Path
) -> None:
    worker = ConnectWorker(tmp_path, broker.address)

    with worker.distributed():
        worker.create_connectors()
    broker.kill()
    broker.forget()
    broker.start()
    worker.append("one more")
    with worker.distributed():
        worker.wait_until(lambda: "one more" in worker.lines())

    assert sorted(set(worker.lines())) == sorted([*LINES, "one more"])
