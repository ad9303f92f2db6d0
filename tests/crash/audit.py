"""Targets that keep a table in every mode, beside what its triggers have written down."""

import sqlite3
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any

import sqlalchemy as sa
import yaml

from headwater.sinks.files.formats import table as read_files
from tests.crash.capture import PIPELINE, Capture
from tests.sinks.histories import Truth, settings_of, shown
from tests.sinks.spark.targets import LakeBench

MARKER = "marker"
"""The shop of rows that only say that the stream is on: they are compared with nothing."""
LOOK_S = 0.05
EVERY = ("0s", "100ms", "700ms")
"""How often a target commits, and so slices."""
FILES = {"files": "parquet", "lines": "jsonl"}
MOMENTS = [
    f"_headwater_{name}" for name in ("deleted_at", "committed_at", "valid_from", "valid_to")
]
COMMITS = ("_delta_log", "commits")
NO_DATABASES: Mapping[str, str] = {}


def sinks_of(
    kinds: Sequence[tuple[str, str]], *, seed: int, databases: Mapping[str, str] = NO_DATABASES
) -> dict[str, Any]:
    """By name; `kinds` are pairs of a format or a database, whose address stands in `databases`
    unless it is SQLite, and a way of keeping a table."""
    chance, found = Random(seed), dict[str, Any]()
    for kind, kept in kinds:
        name = f"{kind}_{kept}"
        place: dict[str, Any] = {"type": "spark", "path": f"./{name}", "format": kind}
        if kind in FILES:
            place = {"type": "files", "path": f"./{name}", "format": FILES[kind]}
        elif kind == "sqlite":
            place = {"type": "sql", "url": f"sqlite:///{name}.db"}
        elif kind in databases:
            place = {"type": "sql", "url": databases[kind], "table": f"{kept}_{{table}}"}
        held = {} if kind in FILES else settings_of(kept)
        found[name] = {**place, **held, "commit_every": chance.choice(EVERY)}
    return found


def pipeline_of(sinks: dict[str, Any], *, slice_rows: int | None = None) -> str:
    """As `Capture` fills it in."""
    before, _, after = PIPELINE.partition("sink: ")
    limits = {} if slice_rows is None else {"limits": {"slice_rows": slice_rows}}
    said = (
        yaml.safe_dump({"sink": [{"name": name, **sink} for name, sink in sinks.items()], **limits})
        .replace("{", "{{")
        .replace("}", "}}")
    )
    return before + said + after.partition("\n")[2]


class Audit:
    """Of a capture whose stream is on; what was before counts for nothing."""

    def __init__(self, capture: Capture, sinks: dict[str, Any], changes: str) -> None:
        """`changes` is the question for the changes behind a number."""
        self._capture, self._sinks, self._changes = capture, sinks, changes
        self._wait_for_marker(0)  # which only a snapshot has
        for number in (1, 2):  # the second one when the first has come, so that it is streamed
            self._ask("INSERT INTO orders VALUES (%s, %s, '')", MARKER, number)
            self._wait_for_marker(number)
        [(self._since,)] = self._ask("SELECT max(number) FROM audit")

    @property
    def _table(self) -> str:
        return f"{self._capture.namespace}.orders"

    def differences(self) -> dict[str, tuple[int, int]]:
        """Sink to how many rows only the audit has, and only the target."""
        changes, found = self._ask(self._changes, self._since), {}
        for name in self._sinks:
            kept = name.partition("_")[2]
            truth = Truth(kept)
            for letter, shop, id, note, committed_us in changes:
                row = {"shop": shop, "id": id, "note": note}
                truth.take([(letter, row)], committed_us=committed_us)
            there, here = truth.rows(), shown(kept, self._rows(name))
            if there != here:
                wanted, had = Counter(there), Counter(here)
                found[name] = ((wanted - had).total(), (had - wanted).total())
        return found

    def changes(self) -> int:
        """How many rows the triggers have written down since."""
        return len(self._ask(self._changes, self._since))

    def delivered(self) -> int:
        """How many rows the first target has; one that keeps all changes gets more with each."""
        return len(self._read(next(iter(self._sinks))))

    def slices(self) -> int:
        """Commits of Delta's tables and of files; the others do not keep them."""
        within = [self._capture.directory / name for name in self._sinks]
        found = [list(each.rglob(f"{named}/*.json")) for each in within for named in COMMITS]
        return sum(map(len, found))

    def _wait_for_marker(self, number: int) -> None:
        name = next(iter(self._sinks))
        while not any((row["shop"], row["id"]) == (MARKER, number) for row in self._read(name)):
            assert self._capture.runner.poll() is None, self._capture.runner.last_words()
            time.sleep(LOOK_S)

    def _rows(self, name: str) -> list[dict[str, Any]]:
        return [row for row in self._read(name) if row["shop"] != MARKER]

    def _read(self, name: str) -> list[dict[str, Any]]:
        sink, place = self._sinks[name], self._capture.directory / name
        if sink["type"] == "files":
            rows: list[dict[str, Any]] = read_files(str(place), self._table).to_pylist()
            return [_with_moments(row) for row in rows]
        if sink["type"] == "spark":
            found = LakeBench(str(place), chosen={"format": sink["format"]}).table(self._table)
            return [] if found is None else found.to_pylist()
        if sink["url"].startswith("sqlite"):
            return _in_sqlite(place.with_suffix(".db"))
        return _in_database(sink["url"], sink["table"].format(table="orders"))

    def _ask(self, question: str, *values: Any) -> list[Any]:
        return self._capture.server.execute(self._capture.name, question, *values)


def _in_database(address: str, table: str) -> list[dict[str, Any]]:
    driver = "postgresql+psycopg" if address.startswith("postgresql") else "mariadb+pymysql"
    engine = sa.create_engine(sa.make_url(address).set(drivername=driver))
    try:
        with engine.connect() as connection:
            if not sa.inspect(connection).has_table(table):
                return []
            found = connection.execute(sa.text(f"SELECT * FROM {table}"))
            return [{name: _in_utc(value) for name, value in row._mapping.items()} for row in found]
    finally:
        engine.dispose()


def _in_utc(value: Any) -> Any:
    is_aware = isinstance(value, datetime) and value.tzinfo is not None
    return value.astimezone(UTC) if is_aware else value


def _in_sqlite(path: Path) -> list[dict[str, Any]]:
    """SQLite keeps moments as text."""
    with closing(sqlite3.connect(path)) as database:
        if not database.execute("SELECT 1 FROM sqlite_master WHERE name = 'orders'").fetchall():
            return []
        database.row_factory = sqlite3.Row
        rows = [dict(row) for row in database.execute("SELECT * FROM orders")]
    return [_with_moments(row) for row in rows]


def _with_moments(row: dict[str, Any]) -> dict[str, Any]:
    """In JSON lines they are texts as well."""
    return {
        name: datetime.fromisoformat(value) if name in MOMENTS and isinstance(value, str) else value
        for name, value in row.items()
    }
