"""A table whose triggers write down every change, and targets that keep it in every mode."""

import sqlite3
import time
from collections.abc import Sequence
from contextlib import closing
from datetime import datetime
from pathlib import Path
from random import Random
from typing import Any

import psycopg
import yaml

from tests.crash.capture import PIPELINE, Capture
from tests.sinks.histories import Row, Truth, settings_of, shown
from tests.sinks.spark.targets import LakeBench

TABLES = (
    "CREATE TABLE orders (shop text, id int, note text, PRIMARY KEY (shop, id))",
    "CREATE TABLE audit (number bigserial PRIMARY KEY, at xid DEFAULT pg_current_xact_id()::xid,"
    " letter text NOT NULL, shop text, id int, note text)",
    "CREATE FUNCTION keep() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
    " IF TG_OP = 'TRUNCATE' THEN INSERT INTO audit (letter) VALUES ('t'); RETURN NULL; END IF;"
    " IF TG_OP = 'DELETE' OR (TG_OP = 'UPDATE' AND (OLD.shop, OLD.id) <> (NEW.shop, NEW.id)) THEN"
    " INSERT INTO audit (letter, shop, id) VALUES ('d', OLD.shop, OLD.id); END IF;"
    " IF TG_OP <> 'DELETE' THEN INSERT INTO audit (letter, shop, id, note) VALUES ("
    " CASE WHEN TG_OP = 'INSERT' OR (OLD.shop, OLD.id) <> (NEW.shop, NEW.id) THEN 'c' ELSE 'u' END,"
    " NEW.shop, NEW.id, NEW.note); END IF; RETURN NULL; END $$",
    "CREATE TRIGGER rows AFTER INSERT OR UPDATE OR DELETE ON orders"
    " FOR EACH ROW EXECUTE FUNCTION keep()",
    "CREATE TRIGGER truncates AFTER TRUNCATE ON orders FOR EACH STATEMENT EXECUTE FUNCTION keep()",
)
CHANGES = (
    "SELECT letter, shop, id, note, (extract(epoch FROM pg_xact_commit_timestamp(at)) * 1000000)"
    "::bigint FROM audit WHERE number > %s ORDER BY number"
)
MARKER = "marker"
"""The shop of rows that only say that the stream is on: they are compared with nothing."""
LOOK_S = 0.05
EVERY = ("0s", "100ms", "700ms")
"""How often a target commits, and so slices."""


class AuditWriter:
    """Few keys, so that most transactions touch some of them more than once."""

    rows_per_s = 400

    def __init__(self, *, seed: int) -> None:
        self._random = Random(seed)

    def transact(self, connection: psycopg.Connection) -> int:
        is_given_up, rows = self._random.random() < 0.05, 0
        try:
            with connection.transaction(force_rollback=is_given_up):
                for _ in range(self._random.choice((1, 1, 2, 3, 12))):
                    rows += max(connection.execute(*self._statement()).rowcount, 0)
                with connection.transaction(force_rollback=True):
                    connection.execute("UPDATE orders SET note = 'never' WHERE id = 1")
        except (psycopg.errors.LockNotAvailable, psycopg.errors.UniqueViolation):
            return 0
        return 0 if is_given_up else rows

    def _statement(self) -> tuple[Any, Sequence[Any]]:
        shop, id = self._random.choice(("a", "é", "zz")), self._random.randrange(30)
        note, kind = str(self._random.random()), self._random.random()
        if kind < 0.01:
            return "TRUNCATE orders", ()
        if kind < 0.3:
            return "DELETE FROM orders WHERE shop = %s AND id = %s", (shop, id)
        if kind < 0.4:
            moved = "UPDATE orders SET id = %s, note = %s WHERE shop = %s AND id = %s"
            return moved, (self._random.randrange(30), note, shop, id)
        put = (
            "INSERT INTO orders VALUES (%s, %s, %s) ON CONFLICT (shop, id)"
            " DO UPDATE SET note = excluded.note"
        )
        return put, (shop, id, note)


def sinks_of(kinds: Sequence[tuple[str, str]], *, seed: int) -> dict[str, Any]:
    """By name; `kinds` are pairs of `sql`, `delta` or `iceberg` and a way of keeping a table."""
    chance, found = Random(seed), dict[str, Any]()
    for kind, kept in kinds:
        name = f"{kind}_{kept}"
        place = (
            {"type": "sql", "url": f"sqlite:///{name}.db"}
            if kind == "sql"
            else {"type": "spark", "path": f"./{name}", "format": kind}
        )
        found[name] = {**place, **settings_of(kept), "commit_every": chance.choice(EVERY)}
    return found


def pipeline_of(sinks: dict[str, Any]) -> str:
    """As `CapturedRelation` fills it in."""
    before, _, after = PIPELINE.partition("sink: ")
    said = (
        yaml.safe_dump({"sink": [{"name": name, **sink} for name, sink in sinks.items()]})
        .replace("{", "{{")
        .replace("}", "}}")
    )
    return (before + said + after.partition("\n")[2]).replace("public.*", "public.orders")


class Audit:
    """Of a capture whose stream is on; what was before counts for nothing."""

    def __init__(self, capture: Capture, sinks: dict[str, Any]) -> None:
        self._capture, self._sinks = capture, sinks
        for number in (1, 2):  # the second one when the first has come, so that it is streamed
            self._wait_for_marker(number)
        [(self._since,)] = self._ask("SELECT max(number) FROM audit")

    def differences(self) -> dict[str, tuple[int, int]]:
        """Sink to how many rows only the audit has, and only the target."""
        changes, found = self._ask(CHANGES, self._since), {}
        for name in self._sinks:
            kept = name.partition("_")[2]
            truth = Truth(kept)
            for letter, shop, id, note, committed_us in changes:
                row = {"shop": shop, "id": id, "note": note}
                truth.take([(letter, row)], committed_us=committed_us)
            there, here = truth.rows(), shown(kept, self._rows(name))
            if there != here:
                found[name] = (len(_left(there, here)), len(_left(here, there)))
        return found

    def _wait_for_marker(self, number: int) -> None:
        with psycopg.connect(self._capture.address) as connection:
            values = (MARKER, number)
            connection.execute("INSERT INTO orders VALUES (%s, %s, '')", values)
        name = next(iter(self._sinks))
        while not any(row["id"] == number for row in self._read(name)):
            assert self._capture.runner.poll() is None, self._capture.runner.last_words()
            time.sleep(LOOK_S)

    def _rows(self, name: str) -> list[dict[str, Any]]:
        return [row for row in self._read(name) if row["shop"] != MARKER]

    def _read(self, name: str) -> list[dict[str, Any]]:
        directory = self._capture.directory
        if self._sinks[name]["type"] == "sql":
            return _in_sqlite(directory / f"{name}.db")
        bench = LakeBench(str(directory / name), chosen={"format": self._sinks[name]["format"]})
        found = bench.table("public.orders")
        return [] if found is None else found.to_pylist()

    def _ask(self, question: str, *values: Any) -> list[Any]:
        with psycopg.connect(self._capture.address) as connection:
            return connection.execute(question.encode(), values).fetchall()


def _left(rows: Sequence[Row], others: Sequence[Row]) -> set[Row]:
    return set(rows) - set(others)


def _in_sqlite(path: Path) -> list[dict[str, Any]]:
    """With moments, which SQLite keeps as text."""
    with closing(sqlite3.connect(path)) as database:
        if not database.execute("SELECT 1 FROM sqlite_master WHERE name = 'orders'").fetchall():
            return []
        database.row_factory = sqlite3.Row
        rows = [dict(row) for row in database.execute("SELECT * FROM orders")]
    for row in rows:
        for name in row:
            is_moment = name.endswith(("_at", "valid_from", "valid_to")) and row[name] is not None
            row[name] = datetime.fromisoformat(row[name]) if is_moment else row[name]
    return rows
