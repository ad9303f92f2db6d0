"""A damaged batch in one of the log's own topics is named, and passed once the log is mended."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from headwater.core_log.embedded import EmbeddedLog
from headwater.core_log.foundation.errors import UnreadableBatch
from headwater.core_log.foundation.settings import BrokerSettings
from headwater.core_log.records.record_codec import iterate_batches
from headwater.core_log.replication.metadata import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from headwater.pipelines.journal.internal_topics import COMMITS, POSITIONS, SCHEMAS
from headwater.pipelines.terminal import exit_codes
from tests.pipelines.test_failed_tables import make_tables, pipeline
from tests.pipelines.time_travel.verify.test_verify import execute
from tests.pipelines.time_travel.world import World, tell

pytestmark = pytest.mark.slow

IN_A_RECORD = 66


def damage(data: Path, topic: str) -> Path:
    """One bit of the first batch with records in the first partition that has any."""
    for directory in sorted((data / "log").glob(f"{topic}-*")):
        path = directory / f"{0:020d}.log"
        content = bytearray(path.read_bytes())
        if next(iterate_batches(content), None) is not None:
            content[IN_A_RECORD] ^= 1
            path.write_bytes(content)
            return directory
    raise AssertionError(f"nothing is in {topic}")


async def first(world: World) -> None:
    await world.run()


async def refused(world: World) -> str:
    with pytest.raises(UnreadableBatch) as error:
        await world.run()
    return str(error.value)


async def offline(data: Path) -> dict[str, str]:
    settings = BrokerSettings(data=data, listen="127.0.0.1:0", internal_partitions=1)
    log = await EmbeddedLog.open(settings)
    try:
        return {at.topic: why for at, why in log.running.broker.offline.items()}
    finally:
        await log.close()


async def again(world: World) -> Any:
    await world.run()
    return await world.verified()


@pytest.mark.parametrize("topic", [POSITIONS, SCHEMAS, COMMITS, OFFSETS_TOPIC, TRANSACTIONS_TOPIC])
def test_a_damaged_batch_of_an_internal_topic_is_named_and_passed_once_it_is_mended(
    topic: str, tmp_path: Path, headwater: Any
) -> None:
    source, data = tmp_path / "source.db", tmp_path / "data"
    make_tables(source)
    tell(tmp_path, pipeline(), first)
    directory = damage(data, topic)
    execute(source, "UPDATE a SET v = 'new' WHERE id = 2")

    if topic in (OFFSETS_TOPIC, TRANSACTIONS_TOPIC):
        why = asyncio.run(offline(data))[topic]
    else:
        why = "" if topic == COMMITS else tell(tmp_path, pipeline(), refused)
    found = headwater("log", "verify", data)
    mended = headwater("log", "mend", "--yes", data)
    sound = headwater("log", "verify", data)
    verdicts = tell(tmp_path, pipeline(), again)

    assert topic == COMMITS or ("headwater log mend" in why and "batch fails its checksum" in why)
    assert found.code == exit_codes.DIFFERENT and str(directory) in found.data + found.remarks
    assert mended.code == exit_codes.OK and "1 place mended" in mended.data
    assert sound.code == exit_codes.OK and ".damaged-" in sound.data
    assert verdicts and all(each.is_equal for each in verdicts.values()), verdicts
