"""A data directory has one owner, whatever log it uses, and everybody can find it."""

import os
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from headwater.core_log.foundation.endpoint import FILE_NAME, Endpoint
from headwater.core_log.foundation.errors import DirectoryInUse
from headwater.core_log.foundation.settings import TopicSettings
from headwater.core_log.model.log import TopicPartition
from headwater.pipelines.file.spec import PipelineSpec
from headwater.pipelines.running.data_directory_lock import COMING, claim, join_broker
from headwater.pipelines.terminal.log_place import find_owner


def a_pipeline(**log: object) -> Any:
    """What a claim needs of a loaded pipeline."""
    spec = PipelineSpec.model_validate({"pipeline": "shop", "log": log})
    return SimpleNamespace(
        name="shop", spec=spec, directory=Path("nowhere"), log_path=Path("nowhere/data")
    )


EMBEDDED: dict[str, object] = {"type": "embedded"}
CLUSTER: dict[str, object] = {"type": "kafka", "bootstrap": ["127.0.0.1:1", "127.0.0.1:2"]}


@pytest.mark.parametrize("log", [EMBEDDED, CLUSTER], ids=["embedded", "kafka"])
async def test_the_owner_is_alone_and_is_found(tmp_path: Path, log: dict[str, object]) -> None:
    loaded = a_pipeline(**log)
    claimed = await claim(loaded, tmp_path)
    assert claimed.publish_http is not None

    with pytest.raises(DirectoryInUse):
        await claim(loaded, tmp_path)
    starting = find_owner(tmp_path)
    claimed.publish_http("127.0.0.1:7777")
    ready = find_owner(tmp_path)
    mode = (tmp_path / FILE_NAME).stat().st_mode & 0o777
    await claimed.close()

    assert starting is not None and starting.http == COMING
    assert ready == Endpoint(
        os.getpid(), claimed.bootstrap[0], http="127.0.0.1:7777", token=claimed.token
    )
    assert mode == 0o600 and len(claimed.token) >= 20
    assert find_owner(tmp_path) is None


@pytest.mark.parametrize("log", [EMBEDDED, CLUSTER], ids=["embedded", "kafka"])
async def test_a_directory_that_was_given_up_can_be_had(
    tmp_path: Path, log: dict[str, object]
) -> None:
    loaded = a_pipeline(**log)
    await (await claim(loaded, tmp_path)).close()

    again = await claim(loaded, tmp_path)
    await again.close()

    assert again.bootstrap


@pytest.mark.slow
async def test_the_owner_knows_the_partitions_that_its_disk_fails_until_they_are_back(
    tmp_path: Path,
) -> None:
    orders, loaded = TopicPartition("orders", 0), a_pipeline(**EMBEDDED)
    first = await claim(loaded, tmp_path)
    await first.log.ensure_topic(TopicSettings(name="orders", partitions=2))
    await first.close()
    place = tmp_path / "log" / "orders-0" / "partition.metadata"
    was = place.read_text()
    place.write_text(re.sub("topic_id: .*", f"topic_id: {'A' * 22}", was))

    claimed = await claim(loaded, tmp_path)
    try:
        offline = claimed.offline()
        place.write_text(was)
        await claimed.log.bounds([orders])  # asks again until it is back
        left = claimed.offline()
    finally:
        await claimed.close()

    assert list(offline) == [orders] and not left
    assert "directory belongs to another topic" in offline[orders]


async def test_a_client_of_a_broker_tells_nobody_of_a_console() -> None:
    joined = join_broker(a_pipeline(), Endpoint(1, "127.0.0.1:1"))

    await joined.close()

    assert joined.publish_http is None and joined.bootstrap == ("127.0.0.1:1",)


@pytest.mark.parametrize("content", ["", "[]", '{"pid": 0}'])
def test_a_file_that_is_no_endpoint_names_no_owner(tmp_path: Path, content: str) -> None:
    (tmp_path / FILE_NAME).write_text(content)

    assert find_owner(tmp_path) is None
