"""An Iceberg lake whose files are in a bucket, and whose catalog is elsewhere."""

from pathlib import Path

import pyarrow as pa
import pytest

from headwater.core_log.foundation.clock import SystemClock
from headwater.core_log.foundation.errors import Fenced
from headwater.core_log.objects.settings import S3Settings
from headwater.sinks.sink import RebuildRecipe
from tests.contract.sink_suite import ORDERS
from tests.moto_server import client_of
from tests.sinks.spark.orders import TABLE, applied, many, state_of
from tests.sinks.spark.targets import LakeBench
from tests.slices import ScriptedTopic


def rows_in(bench: LakeBench) -> list[tuple[int, str]]:
    table, _ = state_of(bench).native
    found: pa.Table = table.scan().to_arrow()
    return sorted(zip(found["id"].to_pylist(), found["note"].to_pylist(), strict=True))


async def test_an_iceberg_table_in_a_bucket_is_written_rebuilt_maintained_and_dropped(
    s3: S3Settings, tmp_path: Path
) -> None:
    client_of(s3).create_bucket(Bucket="iceberg-lake")
    chosen = {"format": "iceberg", "catalog": {"uri": f"sqlite:///{tmp_path}/catalog.db"}}
    bench, topic = LakeBench("s3://iceberg-lake/shop", s3, chosen), ScriptedTopic()
    bench.clock = SystemClock()
    topic.append(ORDERS, *many(0, 3))
    await applied(bench, topic)
    first, second = bench.sink(), bench.sink()
    for each in (first, second):
        await each.committed_offsets([topic.name])
    topic.append(ORDERS, ("u", {"id": 1, "note": "b"}), ("d", {"id": 2}))
    part = topic.slice()
    await first.apply(part)

    with pytest.raises(Fenced):
        await second.apply(part)
    after_both = rows_in(bench)
    shadow = await first.shadow(RebuildRecipe(TABLE))
    await shadow.committed_offsets([topic.name])
    await shadow.apply(topic.slice(start={0: 0}))
    await first.swap(TABLE)
    topic.append(ORDERS, ("c", {"id": 9, "note": "c"}))
    await applied(bench, topic)

    assert after_both == [(0, "a"), (1, "b")]
    assert rows_in(bench) == [(0, "a"), (1, "b"), (9, "c")]
    assert await bench.sink().maintain() == []
    assert len(await bench.sink().versions(TABLE, newest=9)) == 4
    assert await bench.sink().drop() == [f"table public.orders under {bench.path}/public.orders"]
    left = client_of(s3).list_objects_v2(Bucket="iceberg-lake").get("Contents", [])
    assert left == []
