"""Equal rows have equal digests, wherever they stand, and different ones do not."""

from datetime import UTC, datetime
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from headwater.core_log.rows import digests
from headwater.core_log.rows.digests import digests_of

COLUMNS = {
    "bool": pa.array([True, False, None]),
    "int8": pa.array([1, -1, None], pa.int8()),
    "uint64": pa.array([1, 2**64 - 1, None], pa.uint64()),
    "float32": pa.array([1.5, -0.25, None], pa.float32()),
    "float64": pa.array([1.5, float("inf"), None]),
    "decimal128": pa.array([Decimal("1.5"), Decimal("-1.5"), None], pa.decimal128(38, 2)),
    "decimal256": pa.array([Decimal("1.5"), Decimal("-1.5"), None], pa.decimal256(70, 2)),
    "string": pa.array(["", "a", None]),
    "large": pa.array(["a" * 511 + "b", "a" * 511 + "c", None]),
    "very large": pa.array(["a" * 9_000 + "b", "a" * 9_000 + "c", None]),
    "binary": pa.array([b"\0", b"\0\0", None]),
    "date": pa.array([0, 1, None], pa.date32()),
    "time": pa.array([0, 1, None], pa.time64("us")),
    "timestamp": pa.array([datetime(2026, 1, 1, tzinfo=UTC), datetime(1, 1, 1, tzinfo=UTC), None]),
    "list": pa.array([[1], [], None], pa.list_(pa.int32())),
    "texts": pa.array([["a", None], ["a"], None], pa.list_(pa.string())),
    "order": pa.array([[1, 2], [2, 1], [1]], pa.list_(pa.int32())),
    "nested": pa.array([[[1], [2]], [[1, 2]], [[], [1, 2]]], pa.list_(pa.list_(pa.int8()))),
    "fixed": pa.array([[1, 2], [2, 1], None], pa.list_(pa.int32(), 2)),
    "struct": pa.array([{"a": 1, "b": "x"}, {"a": 1, "b": None}, None]),
    "map": pa.array([[("a", 1)], [("a", 2), ("b", 1)], None], pa.map_(pa.string(), pa.int32())),
    "far dates": pa.array([[5_000_000], [4_999_999], None], pa.list_(pa.date32())),
}


@pytest.fixture(params=["plain", "compiled"], autouse=True)
def walk(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    use(request.param, monkeypatch)


def use(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    walk = None if way == "plain" else digests._load()
    monkeypatch.setattr(digests, "_load_compiled", lambda rows: walk)


@pytest.mark.parametrize("kind", COLUMNS)
def test_a_row_has_the_same_digest_in_any_batch(kind: str) -> None:
    column = COLUMNS[kind]

    together = digests_of([column], 3)
    alone = [int(digests_of([column.slice(row, 1)], 1)[0]) for row in range(3)]

    assert together.tolist() == alone
    assert len(set(alone)) == 3


def test_zero_and_its_negative_are_one_value_and_so_is_every_nan() -> None:
    nans = np.array([0x7FF8000000000000, 0x7FF8000000000001], np.uint64).view(np.float64)

    assert len(set(digests_of([pa.array([0.0, -0.0])], 2))) == 1
    assert len(set(digests_of([pa.array(nans)], 2))) == 1


def test_a_map_is_the_same_in_any_order() -> None:
    kind = pa.map_(pa.string(), pa.int32())
    maps = pa.array([[("a", 1), ("b", 2)], [("b", 2), ("a", 1)], [("a", 2), ("b", 1)]], kind)

    first, again, other = digests_of([maps], 3).tolist()

    assert first == again != other


def test_columns_are_told_apart() -> None:
    left = digests_of([pa.array(["ab", "a"]), pa.array(["", "b"])], 2)
    right = digests_of([pa.array(["", "b"]), pa.array(["ab", "a"])], 2)

    assert len({*left.tolist(), *right.tolist()}) == 4


@pytest.mark.slow
def test_a_million_rows_have_a_million_digests() -> None:
    numbers = np.arange(1_000_000)

    found = digests_of(
        [pa.array(numbers % 1_000), pa.array(numbers // 1_000).cast(pa.string())], len(numbers)
    )

    assert len(np.unique(found)) == len(numbers)


def test_compiled_and_plain_code_give_the_same_digests(monkeypatch: pytest.MonkeyPatch) -> None:
    chance = np.random.Generator(np.random.Philox(7))
    texts = [chance.bytes(int(size)) for size in chance.integers(0, 600, 2_000)]
    columns = [
        pa.array(texts, pa.binary()),
        pa.array(texts, pa.binary()).slice(3),
        pa.array(chance.integers(-(2**63), 2**63, 2_000)),
        pa.array([Decimal(number) / 8 for number in range(2_000)], pa.decimal128(38, 20)),
    ]

    found = []
    for way in ("plain", "compiled"):
        use(way, monkeypatch)
        found.append([digests_of([column], len(column)).tolist() for column in columns])

    assert found[0] == found[1]
    assert found[0][0][3:] == found[0][1]
