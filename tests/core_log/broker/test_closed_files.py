"""A log that was closed holds no file open, however soon garbage is collected."""

from pathlib import Path

import pytest

from headwater.core_log.embedded import EmbeddedLog
from headwater.core_log.foundation.settings import BrokerSettings, TopicSettings


def open_below(directory: Path) -> list[str]:
    found = []
    for descriptor in Path("/proc/self/fd").iterdir():
        try:
            path = str(descriptor.readlink())
        except FileNotFoundError:  # the one of the listing
            continue
        if path.startswith(str(directory)):
            found.append(path)
    return found


@pytest.mark.usefixtures("uncollected")
async def test_the_files_of_a_topic_are_closed_with_the_log(tmp_path: Path) -> None:
    log = await EmbeddedLog.open(BrokerSettings(data=tmp_path, listen="127.0.0.1:0"))
    await log.ensure_topic(TopicSettings(name="orders", partitions=12))

    before = [path for path in open_below(tmp_path) if "orders-" in path]
    await log.close()

    assert len(before) >= 12
    assert not [path for path in open_below(tmp_path) if "orders-" in path]
