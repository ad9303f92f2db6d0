"""Who reads a value of PostgreSQL makes the same event of it, or refuses it as all do."""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

import orjson
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from headwater.connectors.postgres.settings import PostgresSettings
from headwater.connectors.postgres.source import PostgresSource
from headwater.core_log.model.changes import TableChanges
from headwater.core_log.model.table_schema import TableId
from headwater.core_log.rows.codec import codec_for
from headwater.core_log.rows.settings import WireSettings
from headwater.pipelines.time_travel.verify.source_state import readable
from tests.budget import IS_LONG
from tests.connectors.postgres.source_session import source_context
from tests.connectors.postgres.types.test_read_as_streamed import MADE, ODD
from tests.connectors.postgres.types.test_round_trips import COLUMNS
from tests.databases import Guest
from tests.debezium.values import TABLES, TYPES, Of, quoted

SEED, RANDOM_ROWS, COPIED = 15, 200 if IS_LONG else 15, 10_000
ENDS = (
    "294276-12-31 23:59:59.999999", "294247-01-10 04:00:54.775807", "294247-01-10 04:00:54.775808",
    "294246-12-31 23:59:59.999", "10000-01-01", "9999-12-31 23:59:59.999999",
    "0001-01-01 BC", "4714-11-24 00:00:00 BC", "infinity", "-infinity", "1969-12-31 23:59:59.9995",
    "294276-12-31 23:59:59.9994", "1999-12-31 23:59:59.999999", "0044-03-15 12:00:00.001 BC",
)  # fmt: skip
DAYS = ("5874897-12-31", "4714-11-24 BC", "infinity", "-infinity", "0001-01-01 BC", "10000-01-01")
CLOCKS = ("24:00:00", "23:59:59.9999999", "00:00:00.000001", "00:00:00")
FAR = (
    *(Of(f"{kind}{digits}", ENDS) for kind in ("timestamp", "timestamptz")
      for digits in ("", "(0)", "(1)", "(2)", "(3)", "(4)", "(6)")),
    *(Of(f"time{digits}", CLOCKS) for digits in ("", "(0)", "(3)", "(4)", "(6)")),
    Of("date", DAYS),
    Of("timetz", ("24:00:00-15:59:59", "00:00:00+15:59:59", "24:00:00+00", "23:59:59.999999+00")),
    Of("timestamp[]", (f"{{{','.join(ENDS[:1])}}}", "{infinity,NULL}", f"{{{ENDS[4]}}}")),
    Of("timestamp(3)[]", (f"{{{ENDS[0]}}}", "{-infinity}")),
    Of("timestamptz(3)[]", (f"{{{ENDS[3]}}}",)),
    Of("date[]", (f"{{{DAYS[0]},{DAYS[1]},infinity}}",)),
    Of("time[]", ("{24:00:00,NULL}",)),
    Of("hw.dts3[]", (f"{{{ENDS[3]}}}",)),
    Of("interval", ("178000000 years", "-178000000 years", "9223372036854 seconds", "infinity")),
    Of("numeric(10,2)[]", ("{NaN,1.5}", "{{1,2},{3,4}}", "{}")),
    Of("numeric(10,2)", ("NaN", "99999999.99", "-99999999.99")),
    Of("numeric(76,38)", ("9" * 38 + "." + "9" * 38,)),
    Of("int4[][]", ("{{1,2},{NULL,4}}", "{1,2}", "{{{1}}}", "{}", "[-5:-4][7:8]={{1,2},{3,4}}")),
    Of("text[]", ("{{a,b}}", '{"NULL",NULL,""}', r'{"\\x","\"{}"}')),
    Of("float8[]", ("{NaN,-Infinity,-0,5e-324}",)),
    Of("point", ("(NaN,-Infinity)", "(-0,1.7976931348623157e308)", "(5e-324,0.1)")),
    Of("bit(1)", ("1", "0")),
    Of("bool[]", ("{t,f,NULL}",)),
    Of("uuid[]", ("{ffffffff-ffff-ffff-ffff-ffffffffffff}",)),
    Of("int8[]", ("{-9223372036854775808,9223372036854775807}",)),
)  # fmt: skip

Told = defaultdict[str, dict[int, Any]]
"""By table and key: what stands in the event."""


SINCE_15 = ("numeric(3,5)", "numeric(5,-2)")
"""Types whose digits before and after the point no earlier PostgreSQL takes."""


def tried(*, version: int) -> list[Of]:
    """Every type once, with all that is known to be odd of it and values by chance."""
    values: dict[str, list[str]] = defaultdict(list)
    for each in (*FAR, *ODD, *(column for columns in TABLES.values() for column in columns)):
        values[each.type] += each.values
    for kind, strategy in COLUMNS.items():
        values[kind] += drawn(strategy)
    left_out = SINCE_15 if version < 15 else ()
    return [
        Of(kind, tuple(dict.fromkeys(found)))
        for kind, found in values.items()
        if kind not in left_out
    ]


def drawn(strategy: st.SearchStrategy[str]) -> list[str]:
    found: list[str] = []

    @seed(SEED)
    @settings(
        max_examples=RANDOM_ROWS, phases=[Phase.generate], database=None, deadline=None,
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(strategy)
    def draw(value: str) -> None:
        found.append(value)

    draw()
    return found


def statements(columns: list[Of]) -> Iterator[str]:
    yield from (TYPES, MADE, "CREATE TABLE empty (id int4 PRIMARY KEY)")
    for place, column in enumerate(columns):
        yield f"CREATE TABLE t{place} (id int4 PRIMARY KEY, v {column.type})"
        yield f"ALTER TABLE t{place} REPLICA IDENTITY FULL"
        for key, value in enumerate(column.values):
            yield ATTEMPT.format(table=f"t{place}", key=key, value=quoted(quoted(value)))


ATTEMPT = """
DO $$ BEGIN EXECUTE 'INSERT INTO {table} VALUES ({key}, ' || {value} || ')';
EXCEPTION WHEN data_exception OR check_violation OR feature_not_supported THEN NULL; END $$
"""
"""A version of the server, or a type, may not take it."""


@pytest.mark.parametrize("decimal", ["string", "precise"] if IS_LONG else ["string"])
async def test_every_reader_makes_the_same_event_of_a_value_or_refuses_it(
    guest: Guest, decimal: str
) -> None:
    columns = tried(version=int(guest.value("SHOW server_version_num")) // 10_000)
    tables = [f"t{place}" for place in range(len(columns))]
    await guest.run(";".join(statements(columns)))
    guest.publish(name="first")
    guest.publish("empty", name="later")
    life, other = Life(guest, decimal, "first"), Life(guest, decimal, "later", "public.empty")

    read = await life.read()
    await other.read()
    copies = (f"INSERT INTO {name} SELECT id + {COPIED}, v FROM {name}" for name in tables)
    await guest.run(";".join(copies))
    streamed = await life.read()
    guest.execute(f"ALTER PUBLICATION later ADD TABLE {', '.join(tables)}")
    other.tables = "public.*"
    beside = await other.read()
    seen = await life.seen(tables)

    for name, column in zip(tables, columns, strict=True):
        assert read[name] == streamed[name] == beside[name] == seen[name], column


@dataclass(slots=True)
class Life:
    """A source, whose events are written and read by our codec, as those of a pipeline are."""

    guest: Guest
    decimal: str
    name: str
    """Of its slot and publication."""
    tables: str = "public.*"
    positions: dict[str, str] = field(default_factory=dict)

    def source(self) -> PostgresSource:
        given = {
            "url": self.guest.url, "tables": [self.tables], "decimal": self.decimal,
            "publication": {"name": self.name}, "slot": {"name": self.name},
            "unknown_types": "text",
        }  # fmt: skip
        return PostgresSource(
            PostgresSettings.model_validate(given), source_context(until_end=True)
        )

    async def read(self) -> Told:
        """To the end of what is there."""
        told = Told(dict)
        async with aclosing(self.source().changes(dict(self.positions))) as batches:
            async for batch in batches:
                self.positions |= batch.positions
                for changes in batch.tables:
                    self._note(told, changes)
        return told

    async def seen(self, tables: Iterable[str]) -> Told:
        """As `verify` sees it."""
        told = Told(dict)
        async with self.source().snapshot({}) as found:
            for name in tables:
                async for changes in found.rows(TableId("public", name)):
                    self._note(told, changes)
        return told

    def _note(self, told: Told, changes: TableChanges) -> None:
        if changes.is_truncate or not len(changes):
            return
        codec = codec_for(WireSettings.model_validate({"decimal": self.decimal}), topic="t")
        _, unread = readable(codec, changes, now_us=0)
        refused = {key for each in unread for key in each.rows.column("id").to_pylist()}
        rows = told[changes.schema.table.name]
        rows |= {key % COPIED: "(refused)" for key in refused}
        is_kept = pa.array([key not in refused for key in changes.rows.column("id").to_pylist()])
        for value in codec.encode(changes.filter(is_kept), now_us=0).values.to_pylist():
            row = orjson.loads(value)["after"]
            rows[row["id"] % COPIED] = row["v"]
