"""Every version of a table says which moment of the source it holds, whoever made it."""

from pathlib import Path
from typing import Any

from core_log.log import TopicPartition
from pipelines.loops.build import make_sink
from pipelines.proving.as_of import parse_as_of
from pipelines.proving.rebuild import Wanted, find_rebuilding, rebuild
from pipelines.watching.positions_view import offsets_text, versions_meant
from sinks.sink import Stand
from tests.pipelines.proving_world import World, tell

PIPELINE = """
pipeline: shop
source: {type: generator, size: 1000, total: 4000, rate: 0, batch_rows: 200}
sink: {type: spark, path: ./lake, commit_every: 0s}
"""


def test_a_version_that_a_swap_has_made_holds_what_is_below_its_offsets(tmp_path: Path) -> None:
    async def story(world: World) -> list[dict[str, Any]]:
        await world.run()
        rebuilding = await find_rebuilding(world.loaded, world.log, table="shop.orders", sink=None)
        await rebuild(
            rebuilding,
            world.log,
            Wanted(swaps=True),
            is_running=False,
            clock=world.clock,
            tell=lambda _: None,
        )
        sink = make_sink(world.loaded, rebuilding.part, clock=world.clock)
        found = await versions_meant(world.loaded, world.log, {"spark": sink})
        versions: list[dict[str, Any]] = found["spark"]["shop.orders"]
        return versions

    swapped, *_, before = tell(tmp_path, PIPELINE, story)

    assert swapped["offsets"] == before["offsets"]
    assert swapped["position"] == before["position"]
    assert str(parse_as_of(before["position"], now_ms=0)).startswith("position ")
    assert swapped["committed"] == before["committed"] is not None


def test_offsets_of_several_topics_are_told_apart() -> None:
    one, other = (TopicPartition(topic, 0) for topic in ("shop.a.t", "shop.b.t"))

    assert offsets_text({one: Stand("id", 5), TopicPartition("shop.a.t", 1): Stand("id", 7)}) == (
        "0:5,1:7"
    )
    assert offsets_text({one: Stand("id", 5), other: Stand("id", 9)}) == "shop.a.t-0:5,shop.b.t-0:9"
