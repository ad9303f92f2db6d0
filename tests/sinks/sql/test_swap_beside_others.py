"""A copy takes the place of a table while others write to the target."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headwater.core_log.foundation.errors import SinkUnavailable
from headwater.core_log.model.changes import TableChanges
from headwater.core_log.model.log import TopicPartition
from headwater.sinks.sink import AppliedOffset, RebuildRecipe, Slice
from tests.budget import PATIENCE_S
from tests.contract.sink_suite import ITEMS, ORDERS
from tests.sinks.sql.databases import sql_bench
from tests.slices import ScriptedTopic, together


@pytest.mark.parametrize("mode", ["mirror", "append"])
async def test_a_sink_keeps_its_offsets_after_a_swap_by_another_process(
    mode: str, tmp_path: Path
) -> None:
    with sql_bench("sqlite", None, tmp_path) as bench:
        chosen: dict[str, Any] = {"tables": {"*": {"mode": mode}}}
        topic = ScriptedTopic()
        topic.append(ORDERS, ("c", {"id": 1, "note": "a"}))
        live, other = bench.sink(**chosen), bench.sink(**chosen)
        await live.committed_offsets([topic.name])
        await live.apply(topic.slice())
        shadow = await other.shadow(RebuildRecipe(ORDERS.table))
        await shadow.apply(topic.slice(start={0: 0}))
        await other.swap(ORDERS.table)
        topic.append(ORDERS, ("c", {"id": 2, "note": "b"}))
        await live.apply(topic.slice())

        next_run = bench.sink(**chosen)
        offsets = await next_run.committed_offsets([topic.name])

        assert offsets and [each.next_offset for each in offsets.values()] == [4]
        for each in (live, other, shadow, next_run):
            await each.close()


async def test_a_swap_leaves_the_slices_of_other_tables_alone(tmp_path: Path) -> None:
    """Every slice has the commits' own partition, which the copy reads at its own pace."""

    home = TopicPartition("__headwater_commits", 0)

    def with_home(part: Slice, start: int, end: int) -> Slice:
        return replace(
            part,
            start={**part.start, home: AppliedOffset("commits", start)},
            end={**part.end, home: AppliedOffset("commits", end)},
        )

    with sql_bench("sqlite", None, tmp_path) as bench:
        orders, items = ScriptedTopic(), ScriptedTopic("shop.public.items", "topic-2")
        orders.append(ORDERS, ("c", {"id": 1, "note": "a"}))
        items.append(ITEMS, ("c", {"id": 1, "price": 1.5}))
        live, other = bench.sink(), bench.sink()
        await live.committed_offsets([orders.name, items.name, home.topic])
        await live.apply(with_home(together(orders.slice(), items.slice()), 0, 10))
        shadow = await other.shadow(RebuildRecipe(ORDERS.table))
        await shadow.apply(with_home(orders.slice(start={0: 0}), 0, 12))
        await other.swap(ORDERS.table)  # orders is paused meanwhile, items is not

        items.append(ITEMS, ("c", {"id": 2, "price": 2.5}))
        await live.apply(with_home(items.slice(), 10, 14))

        assert len(await bench.rows("public.items")) == 2
        for each in (live, other, shadow):
            await each.close()


async def test_a_slice_whose_table_is_swapped_before_its_first_row_is_not_written_into_the_copy(
    tmp_path: Path, mariadb: str
) -> None:
    """The copy has later rows already, and where it stands stays what it was."""
    orders, items = ScriptedTopic(), ScriptedTopic("shop.public.items", "topic-2")
    orders.append(ORDERS, ("c", {"id": 1, "note": "first"}))
    items.append(ITEMS, ("c", {"id": 1, "price": 1.5}))
    has_begun, is_renamed = asyncio.Event(), asyncio.Event()

    with sql_bench("mariadb", mariadb, tmp_path) as bench:
        live, other = bench.sink(chunk_rows=1), bench.sink()
        await live.committed_offsets([orders.name, items.name])
        await live.apply(together(orders.slice(), items.slice()))
        orders.append(ORDERS, ("u", {"id": 1, "note": "second"}))
        items.append(ITEMS, ("c", {"id": 2, "price": 2.5}))
        under_way, beside = orders.slice(), items.slice()
        orders.append(ORDERS, ("u", {"id": 1, "note": "third"}))
        shadow = await other.shadow(RebuildRecipe(ORDERS.table))
        await shadow.apply(orders.slice(start={0: 0}))

        async def read(_: Slice) -> AsyncIterator[TableChanges]:
            async for changes in beside.changes():
                yield changes
            has_begun.set()
            await is_renamed.wait()
            async for changes in under_way.changes():
                yield changes

        slow = asyncio.create_task(live.apply(replace(together(under_way, beside), read=read)))
        await has_begun.wait()
        swapping = asyncio.create_task(other.swap(ORDERS.table))
        async with asyncio.timeout(PATIENCE_S):
            while "orders__headwater_old" not in bench.all_tables():  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        is_renamed.set()
        async with asyncio.timeout(PATIENCE_S):
            await asyncio.wait([slow, swapping])

        assert isinstance(slow.exception(), SinkUnavailable)
        assert await bench.rows("public.orders") == [{"id": 1, "note": "third"}]
        stood = await other.committed_offsets([orders.name])
        assert stood and [each.next_offset for each in stood.values()] == [6]
        for each in (live, other, shadow):
            await each.close()
