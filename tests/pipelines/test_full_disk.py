"""A disk of the log that takes nothing is named at once, wherever somebody looks."""

import errno
import os
from pathlib import Path
from random import Random
from unittest.mock import patch

import pyarrow as pa
import pytest

from headwater.core_log.broker.lifecycle import RunningBroker
from headwater.core_log.client import KafkaLog, KafkaSettings
from headwater.core_log.foundation.errors import DiskFull
from headwater.core_log.foundation.settings import BrokerSettings, TopicSettings
from headwater.core_log.model.log import TopicPartition
from headwater.core_log.records import arrow_codec
from headwater.core_log.storage.files import OsFiles
from tests.fakes import FaultyFiles

ORDERS = TopicPartition("orders", 0)


@pytest.mark.slow
async def test_a_disk_that_is_full_is_named_with_its_place_and_its_room_until_it_takes_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    is_full = False

    def fault(operation: str, path: Path) -> None:
        if is_full and operation == "write":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    settings = BrokerSettings(data=tmp_path, listen="127.0.0.1:0")
    broker = await RunningBroker.start(
        settings, files=FaultyFiles(OsFiles(), fault), random=Random(1)
    )
    log = KafkaLog(KafkaSettings(bootstrap=[broker.endpoint]))
    [batch] = arrow_codec.encode(pa.array([b"k"]), pa.array([b"v"]), timestamps_ms=1)
    try:
        await log.ensure_topic(TopicSettings(name="orders"))
        await log.append(ORDERS, batch)

        is_full = True
        with pytest.raises(DiskFull) as full:
            await log.append(ORDERS, batch)
        refused, said = broker.broker.store.refused, list(caplog.messages)
        is_full = False
        await log.append(ORDERS, batch)
    finally:
        await log.close()
        await broker.stop()

    place = tmp_path / "log" / "orders-0"
    assert refused.startswith("the disk refused a write: no space left on device, ")
    assert refused.endswith(f" bytes free at {place}")
    assert full.value.problem.startswith("the disk refused a write: ") and str(place) in str(
        full.value
    )
    assert "free some space" in full.value.hint
    assert sum("no space left" in line for line in said) == 1
    assert broker.broker.store.refused == ""


@pytest.mark.slow
async def test_a_writer_that_cannot_be_opened_on_a_full_disk_names_the_disk_and_not_the_cluster(
    tmp_path: Path,
) -> None:
    is_full = False

    def fault(operation: str, path: Path) -> None:
        if is_full and operation == "write":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    settings = BrokerSettings(data=tmp_path, listen="127.0.0.1:0")
    broker = await RunningBroker.start(
        settings, files=FaultyFiles(OsFiles(), fault), random=Random(1)
    )
    address = broker.endpoint
    log = KafkaLog(KafkaSettings(bootstrap=[address]))
    try:
        await log.writer("shop")

        is_full = True
        with (
            patch.object(FaultyFiles, "free_bytes", return_value=4_096),
            pytest.raises(DiskFull) as full,
        ):
            await log.writer("shop")
        assert await log.topics.sizes()
        is_full = False
        await log.writer("shop")
    finally:
        await log.close()
        await broker.stop()

    assert full.value.problem == "the disk of a broker is full"
    assert full.value.facts == {
        "broker": address,
        "path": str(tmp_path / "log"),
        "free_bytes": 4_096,
    }
