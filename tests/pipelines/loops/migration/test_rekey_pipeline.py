"""`run --migrate` gives a table another key: files into SQLite, however rows are kept there."""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import orjson
import pytest

from headwater.core_log.embedded import EmbeddedLog
from headwater.core_log.foundation.errors import ConfigError
from headwater.pipelines.file.loader import LoadedPipeline
from headwater.pipelines.journal.schemas import topics_of
from tests.pipelines.loops.migration.test_migrate_pipeline import FIRST, Shop

pytestmark = pytest.mark.slow

PIPELINE = """
pipeline: shop
source: {{type: files, path: "./in/*.jsonl", table: people, key: [{key}]}}
transform: [{transform}]
sink:
  - {{type: sql, name: mirror, url: "sqlite:///mirror.db", commit_every: 0s}}
  - type: sql
    name: changes
    url: "sqlite:///changes.db"
    tables: {{"*": {{mode: append}}}}
    commit_every: 0s
  - type: sql
    name: versions
    url: "sqlite:///versions.db"
    tables: {{"*": {{mode: scd2}}}}
    commit_every: 0s
"""
Rows = list[tuple[int, str]]


class KeyedShop(Shop):
    """Its people are told apart by `id`, or by whatever an edit says."""

    def edit(self, *, key: str = "id", transform: str = "", **_: str) -> None:
        text = PIPELINE.format(key=key, transform=transform)
        (self.directory / "pipeline.yaml").write_text(text)

    def lines(self, name: str, rows: Rows) -> None:
        lines = [{"id": id, "email": email, "phone": f"+1{id}"} for id, email in rows]
        path = self.directory / "in" / f"{name}.jsonl"
        path.write_bytes(b"".join(orjson.dumps(line) + b"\n" for line in lines))

    def asked(self, sink: str, question: str) -> list[Any]:
        with closing(sqlite3.connect(self.directory / f"{sink}.db")) as database:
            return sorted(database.execute(question))


@pytest.fixture
def shop(tmp_path: Path) -> KeyedShop:
    """Whose people have all got another address since they came."""
    shop = KeyedShop(tmp_path)
    shop.lines("a", [(id, f"old{id}@example.org") for id in range(30)])
    shop.run()
    shop.lines("b", [(id, f"{id}@example.org") for id in range(30)])
    shop.run()
    return shop


def test_targets_go_on_under_the_new_key_and_end_equal(shop: KeyedShop) -> None:
    shop.edit(key="email")
    shop.lines("c", [(id + 100, f"{id}@example.org") for id in range(20, 40)])

    plan = shop.plan()
    with pytest.raises(ConfigError, match="the key of a topic cannot change"):
        shop.run()
    shop.run(migrates=True)

    assert plan.moves == {FIRST: f"{FIRST}.g2"}
    assert [each.wanted for each in plan.differences if each.what == "key"] == ["email"]
    assert shop.plan().moves == {}
    people = [(id, f"{id}@example.org") for id in range(20)]
    people += [(id + 100, f"{id}@example.org") for id in range(20, 40)]
    assert shop.told("mirror") == people
    assert shop.asked("versions", "SELECT id, email FROM people WHERE _headwater_is_current") == (
        people
    )
    assert len(shop.told("changes")) == 80
    verified = shop.verified()
    assert verified["mirror"] and verified["versions"]


def test_the_new_key_is_the_one_of_the_tables(shop: KeyedShop) -> None:
    shop.edit(key="email")
    before = shop.plan().statements["mirror"]
    shop.run(migrates=True)
    shop.lines("c", [(7, "7@example.org")])
    shop.run()

    keys = {
        sink: shop.asked(sink, "SELECT pk, name FROM pragma_table_info('people') WHERE pk > 0")
        for sink in ("mirror", "versions")
    }

    assert any("after `run --migrate` has given" in each for each in before)
    assert keys == {
        "mirror": [(1, "email")],
        "versions": [(1, "email"), (2, "_headwater_valid_from")],
    }
    assert shop.plan().statements["mirror"] == []
    assert len(shop.told("mirror")) == 30


def test_a_later_sink_reads_the_new_topic_alone(shop: KeyedShop) -> None:
    for path in shop.directory.glob("mirror.db*"):
        path.unlink()
    shop.edit(key="email")

    shop.run(migrates=True)

    assert shop.told("mirror") == [(id, f"{id}@example.org") for id in range(30)]


def test_rows_that_share_the_new_key_are_said_and_nothing_is_changed(shop: KeyedShop) -> None:
    shop.lines("c", [(1, "2@example.org")])
    shop.run()
    shop.edit(key="email")

    with pytest.raises(ConfigError, match="not unique or has nulls") as caught:
        shop.run(migrates=True)
    shop.edit()
    shop.run()

    assert "2@example.org" not in str(caught.value)
    assert caught.value.facts["rows_like_others"] == 1
    assert shop.topics() == {FIRST: 1}


def test_a_key_of_columns_that_rows_do_not_have_is_refused_with_the_reason(
    shop: KeyedShop,
) -> None:
    shop.edit(transform='{table: "*", drop: [phone]}')
    shop.run(migrates=True)
    path = shop.directory / "pipeline.yaml"
    path.write_text(PIPELINE.format(key="phone", transform=""))

    plan = shop.plan()

    assert [each.hindrance for each in plan.differences if each.what == "key"] == [
        "the records have no column phone"
    ]
    with pytest.raises(ConfigError, match="the key of a topic cannot be made from its records"):
        shop.run(migrates=True)


def test_a_masked_column_can_be_the_new_key(shop: KeyedShop) -> None:
    shop.edit(key="email", transform='{table: "*", mask: {email: hash}}')

    shop.run(migrates=True)
    shop.lines("c", [(50, "5@example.org"), (51, "51@example.org")])
    shop.run()

    assert b"@example.org" not in shop.records(f"{FIRST}.g2")
    held = shop.do(_rows_of_log)
    assert sorted(held) == [*range(5), *range(6, 30), 50, 51]


async def _rows_of_log(loaded: LoadedPipeline, log: EmbeddedLog) -> list[int]:
    from headwater.core_log.model.log import TopicPartition
    from headwater.pipelines.journal.internal_topics import read_decided

    [topic] = await topics_of(log, loaded.name)
    held: dict[bytes, int] = {}
    async for columns in read_decided(log, TopicPartition(topic, 0)):
        for key, value in zip(columns.keys.to_pylist(), columns.values.to_pylist(), strict=True):
            held[key] = orjson.loads(value)["after"]["id"]
    return list(held.values())


def test_a_table_with_deleted_rows_that_share_the_key_waits_for_its_rebuild(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    shop = KeyedShop(tmp_path)
    text = (tmp_path / "pipeline.yaml").read_text().replace("mode: append", "mode: soft_delete")
    (tmp_path / "pipeline.yaml").write_text(text)
    shop.lines("a", [(1, "1@example.org"), (2, "2@example.org")])
    shop.run()
    with closing(sqlite3.connect(tmp_path / "changes.db")) as database:
        database.execute(
            "INSERT INTO people SELECT 3, email, phone, '2026-01-01' FROM people WHERE id = 2"
        )
        database.commit()
    text = text.replace("key: [id]", "key: [email]")
    (tmp_path / "pipeline.yaml").write_text(text)
    shop.lines("b", [(4, "4@example.org")])

    shop.run(migrates=True)

    assert "changes: people is quarantined: the rows that the target keeps" in caplog.text
    assert len(shop.told("mirror")) == 3
    assert len(shop.told("changes")) == 3
