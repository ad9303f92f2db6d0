"""Values of every type at which something changes, and a table of one row for each of them."""

from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from headwater.core_log.foundation.errors import RecordsRejected
from headwater.core_log.rows.digests import digests_of
from headwater.sinks.sink import Comparable, Sink
from tests.budget import IS_LONG
from tests.slices import ScriptedTopic, schema_of

DRAWN = 200 if IS_LONG else 8
DAY_US, INFINITE_MS = 86_400_000_000, (9_223_372_036_825_200, -9_223_372_036_832_400)
NAN, INF = float("nan"), float("inf")
FLOATS = [0.0, -0.0, NAN, INF, -INF, 5e-324, 1.7976931348623157e308, 0.1, 1e16, -1e-7]
SINGLES = [0.0, NAN, INF, -INF, 1.401298464324817e-45, 3.4028234663852886e38, 0.10000000149011612]
CLOCKS = [0, 1, DAY_US - 1, DAY_US]
MOMENTS = [0, -1, 1_700_000_000_000_001, 253_402_300_799_999_999, 253_402_300_800_000_000,
           -62_135_596_800_000_001, 9_223_371_244_800_000_000,
           *(ms * 1_000 for ms in INFINITE_MS)]  # fmt: skip
DAYS = [0, -1, 20_000, 2_932_896, 2_932_897, -719_163, 2_145_031_948, 2**31 - 1, -(2**31)]
BYTES = [b"", b"\x00\xff", b"\\x00", b"'\"\n"]
TEXTS = ["", "a", "\\N", "NULL", "null", "☺ \u2028\t\n\r\"'\\", "NaN", "a ", "\0b", "{}"]
POINT = pa.struct([("x", pa.float64()), ("wkb", pa.binary()), ("srid", pa.int32())])
DEEP = pa.struct(
    [("d", pa.decimal128(20, 9)), ("at", pa.timestamp("us", "UTC")), ("day", pa.date32()),
     ("clock", pa.time64("us")), ("many", pa.list_(pa.binary())), ("f", pa.float32())]
)  # fmt: skip
VALUES: dict[pa.DataType, list[Any]] = {
    pa.bool_(): [True, False],
    pa.int8(): [-(2**7), 2**7 - 1],
    pa.int16(): [-(2**15), 2**15 - 1],
    pa.int32(): [-(2**31), 2**31 - 1],
    pa.int64(): [-(2**63), 2**63 - 1, 2**53 + 1],
    pa.uint8(): [0, 2**8 - 1],
    pa.uint16(): [0, 2**16 - 1],
    pa.uint32(): [0, 2**32 - 1],
    pa.uint64(): [0, 2**63, 2**64 - 1],
    pa.float32(): SINGLES,
    pa.float64(): FLOATS,
    pa.decimal128(10, 2): [Decimal("-99999999.99"), Decimal("0.01"), Decimal(0)],
    pa.decimal128(15, 15): [Decimal("0.999999999999999"), Decimal("-1E-15")],
    pa.decimal128(38, 10): [Decimal("-1234567890123456789012345678.0123456789"), Decimal("1E-10")],
    pa.decimal256(70, 10): [Decimal("9" * 60 + ".0123456789")],
    pa.string(): TEXTS,
    pa.binary(): BYTES,
    pa.date32(): DAYS,
    pa.time32("ms"): [0, 1, DAY_US // 1_000 - 1, DAY_US // 1_000],
    pa.time64("us"): CLOCKS,
    pa.time64("ns"): [0, 1, DAY_US * 1_000 - 1, DAY_US * 1_000],
    pa.timestamp("ms"): [0, -1, 9_224_318_015_999_999, *INFINITE_MS],
    pa.timestamp("us"): MOMENTS,
    pa.timestamp("us", "UTC"): MOMENTS,
    pa.timestamp("ms", "UTC"): [1, 9_224_318_015_999_999, *INFINITE_MS],
    pa.timestamp("ns"): [0, -1, 2**63 - 1],
    pa.list_(pa.int64()): [[], [None, -(2**63), 2**63 - 1]],
    pa.list_(pa.float64()): [FLOATS, [None]],
    pa.list_(pa.float32()): [SINGLES],
    pa.list_(pa.string()): [TEXTS[:-2], []],
    pa.list_(pa.binary()): [BYTES, [None]],
    pa.list_(pa.bool_()): [[True, None, False]],
    pa.list_(pa.decimal128(20, 9)): [[Decimal("0.000000001"), Decimal("-99999999999.999999999")]],
    pa.list_(pa.timestamp("us")): [MOMENTS, [None]],
    pa.list_(pa.date32()): [DAYS],
    pa.list_(pa.time64("us")): [CLOCKS, CLOCKS[:-1]],
    pa.list_(pa.list_(pa.float64())): [[[NAN], [], None, [1.5, None]]],
    POINT: [{"x": NAN, "wkb": b"\x00\xff", "srid": None}, {"x": -INF, "wkb": None, "srid": 1}],
    DEEP: [
        {"d": Decimal("0.000000001"), "at": MOMENTS[4], "day": DAYS[-1], "clock": DAY_US,
         "many": [b"\xff", None], "f": NAN},
        {"d": None, "at": None, "day": None, "clock": 1, "many": [], "f": 0.5},
    ],
}  # fmt: skip
DRAWS: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.float64(): st.floats(),
    pa.float32(): st.floats(width=32),
    pa.decimal128(15, 15): st.decimals(-1, 1, places=15).filter(lambda value: abs(value) < 1),
    pa.decimal128(10, 2): st.decimals(-(10**7), 10**7, places=2),
    pa.string(): st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
    pa.binary(): st.binary(max_size=8),
    pa.timestamp("us"): st.integers(-(2**62), 2**62),
    pa.date32(): st.integers(-(2**31), 2**31 - 1),
    pa.time64("us"): st.integers(0, DAY_US),
    pa.list_(pa.float64()): st.lists(st.floats() | st.none(), max_size=3),
    pa.list_(pa.binary()): st.lists(st.binary(max_size=3) | st.none(), max_size=3),
}
KINDS = [*VALUES]
SCHEMA = schema_of(
    "public.exact", id=pa.int64(), **{f"c{at}": kind for at, kind in enumerate(KINDS)}
)


def rows() -> list[dict[str, Any]]:
    """Each has one value, and nulls."""
    found = [
        {"id": 0, f"c{at}": value}
        for at, kind in enumerate(KINDS)
        for value in (*VALUES[kind], *(_drawn(DRAWS[kind]) if kind in DRAWS else ()))
    ]
    return [{**row, "id": number} for number, row in enumerate(found)]


def _drawn(strategy: st.SearchStrategy[Any]) -> list[Any]:
    found: list[Any] = []

    @seed(15)
    @settings(
        max_examples=DRAWN, phases=[Phase.generate], database=None, deadline=None,
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(strategy)
    def draw(value: Any) -> None:
        found.append(value)

    draw()
    return found


async def kept_by(sink: Sink, topic: ScriptedTopic, given: Sequence[dict[str, Any]]) -> set[int]:
    """The ids of the rows that the sink took; the others it has refused by name."""
    await sink.committed_offsets([topic.name])
    topic.append(SCHEMA, *(("c", row) for row in given))
    refused: set[int] = set()
    while True:
        try:
            await sink.apply(topic.slice(start={}, without=sorted(refused)))
        except RecordsRejected as error:
            assert not refused.issuperset(error.reasons)
            refused |= set(error.reasons)
        else:
            return {row["id"] for row in given} - refused


async def differing(sink: Comparable, topic: ScriptedTopic, kept: set[int]) -> list[Any]:
    """What `verify` finds when it reads the target back: rows, by type and value."""
    async with sink.contents(SCHEMA, [topic.name]) as contents:
        assert set(contents.columns) == set(SCHEMA.names), "every column can be read back"
        batches = [batch async for batch in contents.batches]
    back = pa.Table.from_batches(batches, schema=SCHEMA.arrow).sort_by("id").combine_chunks()
    told = pa.Table.from_batches([topic.entries[0].rows])
    told = told.filter(pa.array([key in kept for key in told["id"].to_pylist()])).combine_chunks()
    assert back["id"].to_pylist() == told["id"].to_pylist()
    found: list[Any] = []
    for name in SCHEMA.names:
        ours, theirs = (
            digests_of([each[name].combine_chunks()], told.num_rows) for each in (told, back)
        )
        found += [
            (str(SCHEMA.column(name).type), str(told[name][row]), str(back[name][row]))
            for row in (ours != theirs).nonzero()[0].tolist()
        ]
    return found


def refused_kinds(given: Sequence[dict[str, Any]], kept: set[int]) -> list[tuple[str, Any]]:
    return [
        (str(SCHEMA.column(name).type), row[name])
        for row in given
        for name in row
        if row["id"] not in kept and name != "id"
    ]
