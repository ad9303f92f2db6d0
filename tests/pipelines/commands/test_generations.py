"""Commands that read a table go to the newest generation of its topic, and say so."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.core_log.embedded import EmbeddedLog
from headwater.core_log.model.log import TopicPartition
from headwater.pipelines.commands.tail import next_positions
from headwater.pipelines.file.loader import LoadedPipeline
from headwater.pipelines.terminal import exit_codes
from tests.pipelines.conftest import Headwater, Ran
from tests.pipelines.loops.migration.test_migrate_pipeline import FIRST, Shop
from tests.pipelines.running.owner import owning


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    """It has 40 people in its first topic, and 50 in its second."""
    shop = Shop(tmp_path)
    shop.add("a", range(40), "first")
    shop.run()
    shop.edit(log="partitions: 2")
    shop.add("b", range(40, 50), "second")
    shop.run(migrates=True)
    return shop


@pytest.fixture
def data(shop: Shop) -> Iterator[Path]:
    directory = shop.directory / "data"
    with owning(directory, has_pipelines=False):
        yield directory


def tailed(headwater: Headwater, data: Path, *arguments: object) -> Ran:
    return headwater(
        "tail", *arguments, "--from", "earliest", "--no-follow", "--json", "--data", data
    )


@pytest.mark.parametrize("target", ["shop/people", f"{FIRST}.g2", FIRST])
def test_a_table_and_each_of_its_topics_lead_to_the_newest(
    headwater: Headwater, data: Path, target: str
) -> None:
    ran = tailed(headwater, data, target)

    assert ran.code == exit_codes.OK, ran.remarks
    assert len(ran.data.splitlines()) == 50
    assert f"{FIRST}.g2 is read" in ran.remarks
    assert "--generation 1 reads another" in ran.remarks
    assert (f"{FIRST} is a former generation" in ran.remarks) == (target == FIRST)


def test_a_former_generation_is_read_when_it_is_asked_for(headwater: Headwater, data: Path) -> None:
    ran = tailed(headwater, data, "shop/people", "--generation", 1)
    missing = tailed(headwater, data, FIRST, "--generation", 3)

    assert len(ran.data.splitlines()) == 40 and ran.remarks == ""
    assert missing.code == exit_codes.INVALID
    assert f"known generations: {FIRST}, {FIRST}.g2" in missing.remarks


def test_an_unknown_table_or_pipeline_is_an_error(headwater: Headwater, data: Path) -> None:
    table = tailed(headwater, data, "shop/peple")
    pipeline = tailed(headwater, data, "shops/people")

    assert table.code == pipeline.code == exit_codes.INVALID
    assert "did you mean people?" in table.remarks
    assert "the log has no rows of a pipeline of this name" in pipeline.remarks


def test_a_reader_at_the_end_goes_on_behind_what_was_filled_in(shop: Shop) -> None:
    async def moved(_: LoadedPipeline, log: EmbeddedLog) -> list[dict[TopicPartition, int]]:
        place = TopicPartition(FIRST, 0)
        end = (await log.bounds([place]))[place].end
        return [dict(await next_positions(log, "shop", {place: at})) for at in (end - 2, end)]

    early, late = shop.do(moved)

    assert early == {}
    assert {each.topic for each in late} == {f"{FIRST}.g2"}
    assert sum(late.values()) >= 40  # with markers of transactions between


def test_a_row_is_shown_as_the_newest_generation_tells_it(headwater: Headwater, data: Path) -> None:
    ran = headwater("rows", "shop/people", "7", "--json", "--data", data)

    assert ran.envelope["data"]["topic"] == f"{FIRST}.g2"
    assert f"from {FIRST}.g2" in ran.remarks
    assert json.loads(ran.data)["data"]["changes"][0]["row"]["email"] == "first7@example.org"
