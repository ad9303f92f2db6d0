"""Versions of files are ordered by when they were run first, and each run is known by what it said
last."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from headwater.core_log.embedded import EmbeddedLog
from headwater.core_log.foundation.settings import BrokerSettings
from headwater.pipelines.journal.commits import small_batch
from headwater.pipelines.journal.member_topic import HOME, MemberTopic


@pytest.fixture
async def log(tmp_path: Path) -> AsyncIterator[EmbeddedLog]:
    log = await EmbeddedLog.open(BrokerSettings(data=tmp_path, listen="127.0.0.1:0"))
    yield log
    await log.close()


async def test_a_version_keeps_its_place_until_somebody_makes_it_the_newest(
    log: EmbeddedLog,
) -> None:
    one, other = MemberTopic(log), MemberTopic(log)
    first = await one.version("shop", "a", now_ms=1)
    second = await other.version("shop", "b", now_ms=2)

    assert first < second
    assert await other.version("shop", "a", now_ms=3) == first
    again = await one.version("shop", "a", is_newest=True, now_ms=4)
    assert again > second
    assert await one.version("shop", "a", is_newest=True, now_ms=5) == again
    assert await other.version("shop", "a", now_ms=6) == again


async def test_the_last_word_of_a_run_counts_and_what_others_wrote_does_not(
    log: EmbeddedLog,
) -> None:
    one, other = MemberTopic(log), MemberTopic(log)
    await one.say("me", {"generation": 1}, now_ms=1)
    await one.say("me", {"generation": 2}, now_ms=2)
    for key, value in ((b"not json", b"x"), (b'["status","stranger"]', b"x"), (b"{}", b"")):
        await log.append(HOME, small_batch([(key, value)], now_ms=3))

    found = await other.statuses()

    assert found.keys() == {"me"}
    assert found["me"]["generation"] == 2
