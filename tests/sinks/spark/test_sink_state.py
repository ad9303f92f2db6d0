"""What lies beside the tables may be lost: they say themselves where they stand."""

import shutil
from pathlib import Path

import pytest

from headwater.core_log.foundation.errors import SinkUnavailable
from tests.contract.sink_suite import ITEMS, ORDERS, by_id, offsets
from tests.sinks.spark.targets import LakeBench
from tests.slices import ScriptedTopic, together

APPEND = {"tables": {"*": {"mode": "append"}}}


def lose_state_log(bench: LakeBench) -> None:
    shutil.rmtree(f"{bench.path}/_headwater")


async def test_a_sink_whose_state_log_was_lost_goes_on_where_its_tables_stand(
    tmp_path: Path,
) -> None:
    bench = LakeBench(str(tmp_path / "lake"), chosen=APPEND)
    orders, items = ScriptedTopic(), ScriptedTopic("shop.public.items", "topic-2")
    orders.append(ORDERS, ("c", {"id": 1, "note": "a"}))
    items.append(ITEMS, ("c", {"id": 1, "price": 1.5}))
    await bench.sink().apply(together(orders.slice(), items.slice()))
    lose_state_log(bench)
    sink = bench.sink()

    begun = await sink.committed_offsets([orders.name, items.name])
    orders.append(ORDERS, ("u", {"id": 1, "note": "b"}))
    with pytest.raises(SinkUnavailable) as caught:
        await sink.apply(together(orders.slice(start={0: 0}), items.slice(start={0: 0})))
    found = await offsets(sink, orders.name, items.name)
    await sink.apply(orders.slice(start={0: found[f"{orders.name}/0"]}))

    assert begun == {}
    assert "continues at its tables' offsets" in caught.value.problem
    assert found == {f"{orders.name}/0": 2, f"{items.name}/0": 2}
    rows = await bench.rows("public.orders")
    assert sorted(row["note"] for row in rows) == ["a", "b"]
    assert len(await bench.rows("public.items")) == 1


async def test_a_running_sink_hardly_notices_that_its_state_log_is_lost(tmp_path: Path) -> None:
    bench, topic = LakeBench(str(tmp_path / "lake")), ScriptedTopic()
    topic.append(ORDERS, ("c", {"id": 1, "note": "a"}))
    sink = bench.sink()
    await sink.committed_offsets([topic.name])
    await sink.apply(topic.slice())
    lose_state_log(bench)
    topic.append(ORDERS, ("c", {"id": 2, "note": "b"}))

    await sink.apply(topic.slice())

    assert await offsets(bench.sink(), topic.name) == {f"{topic.name}/0": 4}
    assert by_id(await bench.rows("public.orders")) == [
        {"id": 1, "note": "a"},
        {"id": 2, "note": "b"},
    ]
