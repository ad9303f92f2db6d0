"""What is looked at before a source runs."""

from pathlib import Path

import pytest

from headwater.core_log.embedded import EmbeddedLog
from headwater.core_log.foundation.errors import Fenced
from headwater.core_log.foundation.settings import BrokerSettings, TopicSettings
from headwater.core_log.model.log import TopicPartition
from headwater.pipelines.file.loader import load
from headwater.pipelines.journal.commits import encode_positions, positions_home, small_batch
from headwater.pipelines.journal.internal_topics import SCHEMAS, internal_topics
from headwater.pipelines.loops.ingest.ingest import writer_name
from headwater.pipelines.reports import Report, RowsMoved
from headwater.pipelines.running.first_checks import checked_first
from tests.pipelines.task_runs import task_run

FILE = """
pipeline: shop
source: {type: files, path: rows.csv, key: id}
sink: {type: console}
"""
LONGER_THAN_ANY_TEST_MS = 900_000


@pytest.mark.slow
async def test_a_source_does_not_wait_for_what_was_left_open_by_one_that_was_killed(
    tmp_path: Path,
) -> None:
    (tmp_path / "rows.csv").write_text("id,name\n1,a\n")
    (tmp_path / "pipeline.yaml").write_text(FILE)
    [loaded] = load(tmp_path / "pipeline.yaml", environment={})
    settings = BrokerSettings(data=tmp_path / "data", listen="127.0.0.1:0", internal_partitions=1)
    log, reports = await EmbeddedLog.open(settings), list[Report]()
    killed = log.beside(transaction_timeout_ms=LONGER_THAN_ANY_TEST_MS)
    for topic in internal_topics(history_ms=loaded.spec.log.history_ms):
        await log.ensure_topic(topic)
    writer = await killed.writer(writer_name("shop"))
    transaction = writer.transaction()
    left_open = await transaction.__aenter__()
    for number in range(16):
        schema = small_batch([(b'["shop.rows",1]', b"{}")], now_ms=0)
        await left_open.append(TopicPartition(SCHEMAS, number), schema)
    position = encode_positions("shop", {"file/rows.csv": "{}"}, now_ms=0)
    await left_open.append(positions_home("shop"), position)

    await checked_first()(task_run(loaded, "source", log, report=reports.append))

    assert [each.rows for each in reports if isinstance(each, RowsMoved)] == [1]
    with pytest.raises(Fenced):
        await transaction.__aexit__(None, None, None)
    await killed.close()
    await log.close()


async def test_the_topics_of_the_log_are_seen_to_once_before_a_source_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "rows.csv").write_text("id,name\n1,a\n")
    (tmp_path / "pipeline.yaml").write_text(FILE)
    [loaded] = load(tmp_path / "pipeline.yaml", environment={})
    settings = BrokerSettings(data=tmp_path / "data", listen="127.0.0.1:0", internal_partitions=1)
    log, seen_to, run = await EmbeddedLog.open(settings), list[str](), checked_first()
    plain = log.ensure_topic

    async def noted(*topics: TopicSettings) -> None:
        seen_to.extend(topic.name for topic in topics)
        await plain(*topics)

    monkeypatch.setattr(log, "ensure_topic", noted)
    for _ in range(2):  # and of a source that begins again
        await run(task_run(loaded, "source", log))

    assert seen_to.count(SCHEMAS) == 2
    await log.close()
