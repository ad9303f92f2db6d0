"""A table whose triggers write down every change, and targets that keep it in every mode."""

import sqlite3
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any

import psycopg
import sqlalchemy as sa
import yaml

from headwater.sinks.files.formats import table as read_files
from tests.crash.capture import PIPELINE, Capture
from tests.sinks.histories import Truth, settings_of, shown
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
FILES = {"files": "parquet", "lines": "jsonl"}
MOMENTS = [
    f"_headwater_{name}" for name in ("deleted_at", "committed_at", "valid_from", "valid_to")
]
COMMITS = ("_delta_log", "commits")
NO_DATABASES: Mapping[str, str] = {}


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
                wanted, had = Counter(there), Counter(here)
                found[name] = ((wanted - had).total(), (had - wanted).total())
        return found

    def changes(self) -> int:
        """How many rows the triggers have written down since."""
        return len(self._ask(CHANGES, self._since))

    def slices(self) -> int:
        """Commits of Delta's tables and of files; the others do not keep them."""
        within = [self._capture.directory / name for name in self._sinks]
        found = [list(each.rglob(f"{named}/*.json")) for each in within for named in COMMITS]
        return sum(map(len, found))

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
        sink, place = self._sinks[name], self._capture.directory / name
        if sink["type"] == "files":
            rows: list[dict[str, Any]] = read_files(str(place), "public.orders").to_pylist()
            return [_with_moments(row) for row in rows]
        if sink["type"] == "spark":
            found = LakeBench(str(place), chosen={"format": sink["format"]}).table("public.orders")
            return [] if found is None else found.to_pylist()
        if sink["url"].startswith("sqlite"):
            return _in_sqlite(place.with_suffix(".db"))
        return _in_database(sink["url"], sink["table"].format(table="orders"))

    def _ask(self, question: str, *values: Any) -> list[Any]:
        with psycopg.connect(self._capture.address) as connection:
            return connection.execute(question.encode(), values).fetchall()


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
