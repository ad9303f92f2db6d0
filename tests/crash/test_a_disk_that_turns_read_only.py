"""A disk that the kernel makes read-only is told in words, and costs nothing acknowledged."""

import subprocess
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from headwater.core_log.protocol.error_codes import ErrorCode
from headwater.core_log.protocol.messages.metadata import MetadataRequest
from tests.crash.broker_faults import PowerCut, why_no_power_cuts
from tests.crash.broker_process import BrokerProcess
from tests.crash.plain_client import Wire
from tests.crash.test_a_full_disk_heals import PARTITIONS, Retrying

WHY_NOT = why_no_power_cuts()
BATCHES, REFUSALS = 20, 3

pytestmark = [
    pytest.mark.crash,
    pytest.mark.skipif(WHY_NOT is not None, reason=str(WHY_NOT)),
]


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[PowerCut]:
    disk = PowerCut(tmp_path, Random(3))
    yield disk
    disk.close()


def test_a_read_only_disk_is_named_and_everything_is_there_once_it_can_be_written_again(
    disk: PowerCut, tmp_path: Path
) -> None:
    broker = BrokerProcess(disk.data(), tmp_path / "broker.log", {"internal_partitions": "1"})
    producer = Retrying(Random(9))
    broker.start()
    try:
        with Wire(broker.host_and_port) as wire:
            assert wire.create_topic("t", PARTITIONS, {}) == ErrorCode.NONE
            producer.introduce(wire)
            for _ in range(BATCHES):
                assert producer.send(wire) == {ErrorCode.NONE}

            # What ext4 does by itself when its journal fails, also under files that are open.
            subprocess.run(["mount", "-o", "remount,abort", disk.data().parent], check=True)

            for _ in range(REFUSALS):
                assert producer.send(wire) == {ErrorCode.KAFKA_STORAGE_ERROR}
            assert wire.ask(MetadataRequest(), 9).brokers, "it still answers"
        assert "Traceback" not in broker.last_words()
        broker.kill()
    finally:
        broker.kill_if_running()
        broker.forget()
        broker.end_children()
    disk.mount_again()

    broker.start()
    try:
        with Wire(broker.host_and_port) as wire:
            producer.check(wire)
            assert producer.send(wire) == {ErrorCode.NONE}
            producer.check(wire)
    finally:
        broker.kill()
        broker.forget()
        broker.end_children()
