"""A value of any type, however odd, is the same one read at first and streamed, whatever styles the
database has for people."""

from collections import defaultdict
from typing import Any

import pyarrow as pa
import pytest

from headwater.core_log.model.changes import Operation, TableChanges
from tests.databases import Guest
from tests.debezium.headwater_capture import LAST, reading
from tests.debezium.values import TABLES, Of, create_tables, insert_rows, quoted

STYLES = (
    "IntervalStyle = sql_standard",
    "DateStyle = 'German, DMY'",
    "bytea_output = escape",
    "extra_float_digits = -5",
    "TimeZone = 'Asia/Kathmandu'",
)
MADE = """
CREATE TYPE hw.nested AS (p hw.pair, many hw.pair[], at timestamptz);
CREATE DOMAIN hw.numbers AS int4[];
CREATE DOMAIN hw.pairs AS hw.pair[];
CREATE TYPE hw.span AS RANGE (subtype = float8);
"""
ODD = (
    Of("hw.pair", ("(,)", '(-2147483648,"a ""q"" \\\\ , ) (")', '(1,"")')),
    Of("hw.pair[]", ("{}", '{"(1,x)",NULL,"(,)"}', r'{"(2,\"q \\\"\\\" ,\")"}')),
    Of("hw.nested", ('("(1,x)","{""(2,y)""}","2026-11-20 12:00:00+02")', "(,,infinity)")),
    Of("hw.nested[]", (r'{"(\"(1,x)\",{},)",NULL}',)),
    Of("hw.numbers", ("{}", "{1,NULL,3}", "[5:6]={7,8}")),
    Of("hw.numbers[]", ('{"{1,2}",NULL}',)),
    Of("hw.pairs", ('{"(1,x)"}',)),
    Of("hw.mood[]", ('{sad,NULL,"happy ☺","it\'s, \\"quoted\\""}',)),
    Of("hw.span", ("[-Infinity,Infinity]", "(,NaN]", "[5e-324,1.7976931348623157e308)", "empty")),
    Of("numrange", ("(-Infinity,Infinity)", "(,)", "[-1e-300,1e300]")),
    Of("daterange", ("[-infinity,infinity)", "[4713-01-01 BC,5874897-12-31)", "(,)")),
    Of("tsrange", ("[-infinity,infinity]", '["0044-03-15 12:00:00 BC",)')),
    Of("tstzrange", ("[-infinity,infinity]", '["0044-03-15 12:00:00+00 BC",)')),
    Of("int8multirange", ("{}", "{(,)}", "{(,-9223372036854775807),[0,9223372036854775806)}")),
    Of("tstzmultirange", ('{[-infinity,"2026-01-01 00:00:00+02"),["2027-01-01 00:00:00+00",)}',)),
    Of("int4multirange[]", ('{"{[1,2),[5,)}",NULL}',)),
    Of("daterange[]", ('{"[2026-01-01,infinity)",empty}',)),
    Of("money[]", ("{-92233720368547758.08,NULL}",)),
    Of("interval[]", ('{"-1 year 2 days -00:00:00.000001",NULL}',)),
    Of("interval", ("290000 years", "-290000 years", "-1 mons +100000000 days -24:00:01")),
    Of("timetz[]", ("{24:00:00-15:59,00:00:00+15:59}",)),
    Of("bytea[]", (r'{"\\x00ff5c22",NULL}',)),
    Of("xml", ("<a>\n\t&lt;\u00a0</a>",)),
    Of("pg_lsn", ("FFFFFFFF/FFFFFFFF",)),
    Of("tsvector", ("'a''b':1A,16383 'c\\\\d':2B",)),
    Of("jsonpath", ("strict $.\"a b\"[*] ? (@ > 1.5 && @.c like_regex \"^x\" flag \"i\")",)),
    Of("inet", ("255.255.255.255/0", "::/0", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff/127")),
    Of("cidr", ("0.0.0.0/0", "::/0", "::ffff:1.2.3.0/120")),
    Of('"char"', ("\\\\", "'")),
    Of("name", ("x" * 63, '"é"')),
    Of("oid[]", ("{0,4294967295}",)),
    Of("varbit(70)", ("", "1" * 70)),
)  # fmt: skip


def odd_rows(*, first_id: int) -> list[str]:
    return [
        f"INSERT INTO t_odd VALUES ({first_id + row}, "
        + ", ".join(quoted(each.values[row]) if row < len(each.values) else "NULL" for each in ODD)
        + ")"
        for row in range(max(len(each.values) for each in ODD))
    ]


async def test_every_type_is_read_as_it_is_streamed(guest: Guest) -> None:
    if guest.value("SELECT current_setting('server_version_num')::int") < 15_0000:
        pytest.skip("numbers with more digits behind the point than digits came with PostgreSQL 15")
    columns = ", ".join(f"c{place} {each.type}" for place, each in enumerate(ODD))
    database = guest.value("SELECT current_database()")
    guest.execute(*(f'ALTER DATABASE "{database}" SET {each}' for each in STYLES))
    guest.execute(
        create_tables(),
        MADE,
        f"CREATE TABLE t_odd (id int4 PRIMARY KEY, {columns})",
        f"CREATE TABLE {LAST} (id int4 PRIMARY KEY)",
        *(f"ALTER TABLE {table} REPLICA IDENTITY FULL" for table in (*TABLES, "t_odd")),
        *insert_rows(first_id=0),
        *odd_rows(first_id=0),
    )
    guest.publish()
    again = [*insert_rows(first_id=1_000), *odd_rows(first_id=1_000)]
    updates = [f"UPDATE {table} SET id = id WHERE id < 1000" for table in (*TABLES, "t_odd")]

    async with reading(guest.url, "plain", tables=["public.*"], unknown_types="text") as found:
        await found.streaming()
        end = f"INSERT INTO {LAST} VALUES (1)"
        await guest.run(*again, *updates, end)
        await found.ended
    told = defaultdict[str, list[TableChanges]](list)
    for batch in found.batches:
        assert not batch.rejects or all(str(each.table) in NOT_HELD for each in batch.rejects)
        for changes in batch.tables:
            told[changes.schema.table.name].append(changes)

    widths = {name: len(each) for name, each in TABLES.items()} | {"t_odd": len(ODD)}
    for name, width in widths.items():
        read, inserted, updated, before = cells(told[name])
        assert len(next(iter(read.values()))) == width, name
        assert read == inserted == updated == before, name


Cells = dict[int, dict[str, Any]]
BEYOND_PYTHON = (pa.TimestampScalar, pa.Date32Scalar)
NOT_HELD = {"public.t_num_special"}
"""Tables with values that no column of ours holds: those rows are set aside either way."""


def cells(told: list[TableChanges]) -> tuple[Cells, Cells, Cells, Cells]:
    """Rows by what brought them, and those before an update, each as text by its key."""
    kinds: dict[Operation, Cells] = {each: {} for each in Operation}
    before: Cells = {}
    for changes in told:
        operations = changes.operations.to_pylist()
        for kind, row in zip(operations, texts(changes.rows), strict=True):
            kinds[Operation(kind)][row.pop("id") % 1_000] = row
        if changes.before is not None:
            rows = zip(
                operations, texts(pa.RecordBatch.from_struct_array(changes.before)), strict=True
            )
            before |= {row.pop("id"): row for kind, row in rows if kind == Operation.UPDATE}
    return kinds[Operation.READ], kinds[Operation.INSERT], kinds[Operation.UPDATE], before


def texts(rows: pa.RecordBatch) -> list[dict[str, Any]]:
    """A NaN is itself, and a time beyond those of Python's a number."""
    columns = {
        name: [
            repr(value.value if isinstance(value, BEYOND_PYTHON) else value.as_py())
            for value in column
        ]
        if name != "id"
        else column.to_pylist()
        for name, column in zip(rows.schema.names, rows.columns, strict=True)
    }
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
