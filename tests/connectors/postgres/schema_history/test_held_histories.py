"""A history that cannot take a new type in place is held, and the command in its hint cures it."""

from itertools import count
from pathlib import Path

import pytest

from headwater.pipelines.file.loader import load
from headwater.pipelines.loops.ingest.ingest import SOURCE
from headwater.pipelines.reports import TaskState
from tests.connectors.postgres.schema_history.test_cross_over import Crossing, crossing_in
from tests.databases import Guest, database_in

SINKS = {
    "sqlite": '{{type: sql, url: "sqlite:///target.db", tables: {tables}}}',
    "postgresql": '{{type: sql, url: "{owner}", namespace: kept, tables: {tables}}}',
    "mariadb": '{{type: sql, url: "{mariadb}", tables: {tables}}}',
    "delta": "{{type: spark, path: ./lake, tables: {tables}}}",
    "parquet": "{{type: spark, path: ./lake, format: parquet}}",
}
FILE = """
pipeline: shop
source: {{type: postgres, url: "{url}", tables: [public.items]}}
sink: {sink}
"""
NUMBERS = count(1)
CHANGES = {
    "a wider one": "ALTER TABLE items ALTER b TYPE text USING 't' || b",
    "a narrower one": "ALTER TABLE items ALTER a TYPE int USING length(a)",
}


CASES = [
    *((kind, mode, "a narrower one") for kind in SINKS for mode in ("append", "scd2")),
    *((kind, mode, "a wider one") for kind in ("sqlite", "delta") for mode in ("append", "scd2")),
]
CASES.remove(("parquet", "scd2", "a narrower one"))


@pytest.mark.parametrize(("kind", "mode", "change"), CASES)
async def test_the_command_makes_a_held_history_anew(
    guest: Guest, mariadb: str, tmp_path: Path, kind: str, mode: str, change: str
) -> None:
    with database_in(mariadb, f"held_{next(NUMBERS)}") as address:
        sink = SINKS[kind].format(
            owner=guest.owner, mariadb=address, tables=f'{{"*": {{mode: {mode}}}}}'
        )
        async with crossing_in(guest, tmp_path, mode=mode) as world:
            file = tmp_path / "one.yaml"
            file.write_text(FILE.format(url=guest.url, sink=sink))
            [world.loaded] = load(file, environment={})
            await told_and_made_anew(world, CHANGES[change])


async def told_and_made_anew(world: Crossing, change: str) -> None:
    [part] = world.loaded.sinks
    tasks = (SOURCE, part.name)
    await world.run(tasks=tasks)

    await world.run(change, "UPDATE items SET a = NULL WHERE id = 7", tasks=tasks)

    [held] = [each for each in world.states if each.state is TaskState.QUARANTINED]
    assert "headwater rebuild shop/public.items --swap" in held.reason
    await world.rebuild(part.name)
    await world.run("INSERT INTO items (id) VALUES (51)", tasks=tasks)
    assert not [each for each in world.states if each.state is TaskState.QUARANTINED]
    assert await world.differing() == {"source": 0, part.name: 0}
