"""A history of changes that is known beforehand, on its way through a shared log into a mirror and
a list of all changes; and the audit of both."""

import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path

import orjson

from headwater.connectors.generator.history import truth
from headwater.connectors.generator.settings import GeneratorSettings
from headwater.core_log.model.log import FetchLimit, Isolation, Log, TopicPartition
from headwater.core_log.records import arrow_codec
from headwater.pipelines.journal.internal_topics import INTERNAL

ROWS = 6_000
PIPELINE = """
pipeline: shop
source: {{type: generator, size: 1000, total: 6000, rate: {rate}, batch_rows: 60, batch_wait: 0s}}
sink:
  - {{type: sql, name: mirror, url: "sqlite:///{at}/mirror.db", commit_every: 0s}}
  - type: sql
    name: changes
    url: "sqlite:///{at}/changes.db"
    tables: {{"*": {{mode: append}}}}
    commit_every: 0s
log: {log}
"""
SETTINGS = GeneratorSettings(size=1_000, total=ROWS, rate=0, batch_rows=60)


def audit(directory: Path, in_log: Counter[bytes]) -> None:
    """Nothing is lost, and nothing was applied twice."""
    assert max(in_log.values()) == 1, "a change is in the log once"
    assert in_log.total() >= ROWS
    assert count_changes(directory) == in_log.total()
    with closing(sqlite3.connect(directory / "mirror.db")) as target:
        for table, rows in truth(SETTINGS).items():
            names = ", ".join(f'"{name}"' for name in rows.column_names[:2])
            found = target.execute(f'SELECT {names} FROM "{table.name}" ORDER BY {names}')
            wanted = zip(*(rows.column(at).to_pylist() for at in range(2)), strict=True)
            assert found.fetchall() == sorted(wanted), table


def count_changes(directory: Path) -> int:
    """Rows that every change has left in its table."""
    return sum(_count(directory / "changes.db"))


def _count(database: Path) -> list[int]:
    with closing(sqlite3.connect(database, timeout=10)) as target:
        return [
            target.execute(f'SELECT count(*) FROM "{table.name}"').fetchone()[0]
            for table in truth(SETTINGS)
        ]


def is_whole(directory: Path) -> bool:
    """Whether as many changes as there are have come to both ends."""
    if not (directory / "changes.db").exists() or not (directory / "mirror.db").exists():
        return False
    try:
        changes, rows = count_changes(directory), _count(directory / "mirror.db")
    except sqlite3.OperationalError:
        return False
    return changes >= ROWS and rows == [each.num_rows for each in truth(SETTINGS).values()]


def without_times(value: bytes) -> bytes:
    """Two copies of one change would differ in when they were written."""
    event = orjson.loads(value)
    return orjson.dumps({key: event[key] for key in ("before", "after", "op", "source")})


async def changes_in(log: Log, names: list[str]) -> Counter[bytes]:
    """How often each record of a table is in the log."""
    found = Counter[bytes]()
    for name in names:
        if name in INTERNAL or name.startswith("__") or name.endswith(".dlq"):
            continue
        partition = TopicPartition(name, 0)
        bounds = (await log.bounds([partition]))[partition]
        offset = bounds.start
        while offset < bounds.end:
            for part in await log.fetch(
                {partition: offset}, limit=FetchLimit(), isolation=Isolation.COMMITTED
            ):
                columns = arrow_codec.decode(part.data, from_offset=offset, partition=partition)
                found.update(name.encode() + value for value in columns.values.to_pylist() if value)
                offset = part.next_offset
    return found
