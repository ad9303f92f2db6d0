"""Every version of a table says which moment of the source it holds, whoever made it."""

from pathlib import Path
from typing import Any

import pytest

from headwater.core_log.model.log import TopicPartition
from headwater.pipelines.console.table_routes import target_versions
from headwater.pipelines.loops.assembly import make_sink
from headwater.pipelines.terminal.quantities import time_text
from headwater.pipelines.time_travel.history.as_of import parse_as_of
from headwater.pipelines.time_travel.history.commit_index import CommitIndex
from headwater.pipelines.time_travel.history.cut_points import ReportedOffsets
from headwater.pipelines.time_travel.rebuild.rebuild import RebuildOptions, find_rebuilding, rebuild
from headwater.pipelines.watching.positions_view import (
    offsets_text,
    position_lines,
    position_text,
    sources_of_targets,
    versions_meant,
)
from headwater.sinks.sink import AppliedOffset
from tests.pipelines.time_travel.world import World, tell

pytestmark = pytest.mark.slow

PIPELINE = """
pipeline: shop
source: {type: generator, size: 1000, total: 4000, rate: 0, batch_rows: 200}
sink: {type: spark, path: ./lake, commit_every: 0s}
"""


def test_a_version_that_a_swap_has_made_holds_the_last_commit_that_is_below_its_offsets(
    tmp_path: Path,
) -> None:
    """The version before may say more: it ends where its slice did, be it that the last commits of
    that did not touch the table."""

    async def story(world: World) -> tuple[list[dict[str, Any]], ReportedOffsets]:
        await world.run()
        rebuilding = await find_rebuilding(world.loaded, world.log, table="shop.orders", sink=None)
        await rebuild(
            rebuilding,
            world.log,
            RebuildOptions(swaps=True),
            is_running=False,
            clock=world.clock,
            reporter=lambda _: None,
        )
        sink = make_sink(world.loaded, rebuilding.part, clock=world.clock)
        found = await versions_meant(world.loaded, world.log, {"spark": sink})
        return found["spark"]["shop.orders"], await last_that_touched("shop.shop.orders", world)

    (swapped, *_, before), last = tell(tmp_path, PIPELINE, story)

    assert swapped["offsets"] == before["offsets"]
    assert swapped["position"] == position_text(last.positions)
    assert swapped["committed"] == time_text(last.committed_ms)
    for version in (swapped, before):
        assert str(parse_as_of(version["position"], now_ms=0)).startswith("position ")
    assert swapped["position"] <= before["position"]


ROUTED = """
pipeline: shop
source: {type: generator, size: 1000, total: 4000, rate: 0, batch_rows: 200}
route: [{from: shop.orders, to: other.customers}, {from: shop.customers, to: crm.customers}]
sink: {type: spark, path: ./lake, commit_every: 0s}
"""


def test_the_page_of_a_table_has_versions_of_no_other_table_of_its_name(tmp_path: Path) -> None:
    async def story(world: World) -> dict[str, Any]:
        await world.run()
        sink = make_sink(world.loaded, world.loaded.sinks[0], clock=world.clock)
        return {
            "versions": await versions_meant(world.loaded, world.log, {"spark": sink}),
            "sources": await sources_of_targets(world.loaded, world.log),
        }

    found = tell(tmp_path, ROUTED, story)

    assert {"other.customers", "crm.customers"} <= found["versions"]["spark"].keys()
    for table, target in (("shop.orders", "other"), ("shop.customers", "crm")):
        shown = target_versions(found, table)
        expected = found["versions"]["spark"][f"{target}.customers"]
        assert [each.version for each in shown] == [each["version"] for each in expected]
        assert [each.offsets for each in shown] == [each["offsets"] for each in expected]
    assert (
        found["versions"]["spark"]["other.customers"]
        != (found["versions"]["spark"]["crm.customers"])
    )


def test_a_table_whose_versions_cannot_be_read_leaves_those_of_the_others(tmp_path: Path) -> None:
    async def story(world: World) -> dict[str, Any]:
        await world.run()
        for each in (tmp_path / "lake" / "shop.orders" / "_delta_log").glob("*.json"):
            each.write_text("{torn")
        [part] = world.loaded.sinks
        sink = make_sink(world.loaded, part, clock=world.clock)
        told: dict[str, dict[str, Any]] = await versions_meant(
            world.loaded, world.log, {"spark": sink}
        )
        return told["spark"]

    found = tell(tmp_path, PIPELINE, story)

    [broken] = found["shop.orders"]
    others = [told for name, told in found.items() if name != "shop.orders"]
    positions = {"shop": {"versions": {"spark": found}}}
    lines = list(position_lines({"pipelines": {"shop": {"tasks": {}}}, "positions": positions}))
    assert "shop.orders" in broken["problem"] and f"  {broken['problem']}" in lines
    assert others and all("version" in newest for newest, *_ in others)


async def last_that_touched(topic: str, world: World) -> ReportedOffsets:
    """Of all commits, with the positions of those before it."""
    found, positions = [], dict[str, str]()
    async for commit in CommitIndex(world.log, "shop").newest(1_000):
        positions |= commit.positions
        if TopicPartition(topic, 0) in commit.touched:
            found.append(ReportedOffsets(commit.committed_ms, dict(positions)))
    return found[-1]


def test_offsets_of_several_topics_are_told_apart() -> None:
    one, other = (TopicPartition(topic, 0) for topic in ("shop.a.t", "shop.b.t"))

    assert offsets_text(
        {one: AppliedOffset("id", 5), TopicPartition("shop.a.t", 1): AppliedOffset("id", 7)}
    ) == ("0:5,1:7")
    assert (
        offsets_text({one: AppliedOffset("id", 5), other: AppliedOffset("id", 9)})
        == "shop.a.t-0:5,shop.b.t-0:9"
    )
