"""Rows that are read and rows that are streamed are the same rows, whatever their values."""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from headwater.core_log.model.changes import Operation
from headwater.core_log.rows.codec import codec_for
from headwater.core_log.rows.settings import WireSettings
from tests.databases import Guest
from tests.debezium.headwater_capture import LAST, reading
from tests.debezium.values import TABLES, quoted

SEED, ROWS = 7, 60
WORDS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12)
"""PostgreSQL's text has no NUL."""
COLUMNS: dict[str, st.SearchStrategy[str]] = {
    "int2": st.integers(-(2**15), 2**15 - 1).map(str),
    "int4": st.integers(-(2**31), 2**31 - 1).map(str),
    "int8": st.integers(-(2**63), 2**63 - 1).map(str),
    "numeric": st.decimals(allow_nan=False, allow_infinity=False, places=9).map(str),
    "numeric(38,10)": st.decimals(-(10**18), 10**18, places=10).map(str),
    "numeric(12,2)": st.decimals(-(10**9), 10**9, places=2).map(str),
    "money": st.decimals(-(10**9), 10**9, places=2).map(str),
    "float4": st.floats(width=32).map(repr),
    "float8": st.floats().map(repr),
    "bool": st.sampled_from(["t", "f"]),
    "text": WORDS,
    "varchar(20)": WORDS,
    "char(14)": WORDS,
    "bytea": st.binary(max_size=9).map(lambda value: rf"\x{value.hex()}"),
    "date": st.dates().map(str) | st.sampled_from(["infinity", "-infinity", "4713-01-01 BC"]),
    "time": st.times().map(str) | st.just("24:00:00"),
    "time(2)": st.times().map(str),
    "timetz": st.times().map(lambda value: f"{value}+05:45"),
    "timestamp": st.datetimes().map(str) | st.sampled_from(["infinity", "0044-03-15 12:00:00 BC"]),
    "timestamp(2)": st.datetimes().map(str),
    "timestamptz": st.datetimes().map(lambda value: f"{value}+02"),
    "timestamptz(1)": st.datetimes().map(lambda value: f"{value}-07"),
    "interval": st.integers(-(10**15), 10**15).map(
        lambda value: f"{value // 10**6} seconds {value % 10**6} microseconds"
    ),
    "uuid": st.uuids().map(str),
    "jsonb": st.dictionaries(st.text("abc", max_size=2), st.integers(0, 9)).map(
        lambda value: str(value).replace("'", '"')
    ),
    "bit(11)": st.text("01", min_size=11, max_size=11),
    "varbit": st.text("01", max_size=20),
    "int4[]": st.lists(st.integers(0, 9).map(str) | st.just("NULL"), max_size=4).map(
        lambda items: "{" + ",".join(items) + "}"
    ),
    "text[]": st.lists(WORDS, max_size=4).map(
        lambda items: (
            "{"
            + ",".join('"' + item.replace("\\", "\\\\").replace('"', '\\"') + '"' for item in items)
            + "}"
        )
    ),
    "point": st.tuples(st.integers(-9, 9), st.integers(-9, 9)).map(str),
}


def drawn() -> list[list[str | None]]:
    """Rows of literals; a fixed draw, since each row is a trip to a server."""
    from hypothesis import HealthCheck, Phase, given, seed, settings

    rows: list[list[str | None]] = []

    @seed(SEED)
    @settings(
        max_examples=ROWS, phases=[Phase.generate], database=None, deadline=None,
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(st.tuples(*(st.none() | values for values in COLUMNS.values())))
    def draw(row: tuple[str | None, ...]) -> None:
        rows.append(list(row))

    draw()
    return rows


def inserted(table: str, rows: Sequence[Sequence[str | None]]) -> list[str]:
    return [
        f"INSERT INTO {table} VALUES ({place}, "
        + ", ".join("NULL" if value is None else quoted(value) for value in row)
        + ")"
        for place, row in enumerate(rows)
    ]


async def test_a_row_is_the_same_row_read_or_streamed_and_out_of_the_log(guest: Guest) -> None:
    names = [f"c{place}" for place in range(len(COLUMNS))]
    fields = ", ".join(f"{name} {kind}" for name, kind in zip(names, COLUMNS, strict=True))
    rows = drawn()
    guest.execute(
        f"CREATE TABLE t (id int4 PRIMARY KEY, {fields})",
        f"CREATE TABLE {LAST} (id int4 PRIMARY KEY)",
        *inserted("t", rows),
    )
    guest.publish()

    async with reading(guest.url, "plain") as found:
        await found.streaming()
        again = f"INSERT INTO t SELECT id + 1000, {', '.join(names)} FROM t ORDER BY id"
        await guest.run(again, f"INSERT INTO {LAST} VALUES (1)")
        await found.ended
    told = [each for batch in found.batches for each in batch.tables if len(each.schema.names) > 1]
    read, streamed = (
        [each for each in told if each.operations[0].as_py() == operation]
        for operation in (Operation.READ, Operation.INSERT)
    )

    before, after = (whole(parts).drop_columns(["id"]) for parts in (read, streamed))
    assert before.num_rows == len(rows)
    assert same(before, after)
    for changes in read:
        codec = codec_for(WireSettings(), topic="shop.public.t")
        encoded = codec.encode(changes, now_us=1)
        back = codec.decode(encoded.keys, encoded.values, changes.schema)
        assert same(pa.Table.from_batches([back.rows]), pa.Table.from_batches([changes.rows]))


def whole(parts: Sequence[Any]) -> pa.Table:
    return pa.Table.from_batches([each.rows for each in parts]).sort_by("id").combine_chunks()


def same(one: pa.Table, other: pa.Table) -> bool:
    """Column by column, a NaN being itself."""
    return all(
        a.cast(pa.string()).equals(b.cast(pa.string()))
        if pa.types.is_floating(a.type)
        else a.equals(b)
        for a, b in zip(one.columns, other.columns, strict=True)
    )


def test_every_type_of_the_tables_is_tried_beside_debezium() -> None:
    tried = {column.type for columns in TABLES.values() for column in columns}

    assert {"numeric", "timestamptz", "hw.mood", "text[]", "int4multirange"} <= tried
