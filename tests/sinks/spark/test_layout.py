"""Changes under another schema than the lake's table has are put into its columns, or rejected."""

from dataclasses import replace
from decimal import Decimal

import pyarrow as pa
import pytest

from headwater.core_log.foundation.errors import RecordsRejected
from headwater.core_log.model.changes import TableChanges
from headwater.core_log.model.log import TopicPartition
from headwater.sinks.spark.layout import LakeTableLayout, shape
from headwater.sinks.spark.settings import LakeTableSettings, Mode
from tests.slices import Change, changes_of, schema_of

PLACE = TopicPartition("shop.public.orders", 0)
IGNORE = {"widen_type": "ignore", "change_type": "ignore"}


def layout_of(held: pa.DataType, comes: pa.DataType, *, mode: Mode = "mirror") -> LakeTableLayout:
    settings = LakeTableSettings(mode=mode)
    old = schema_of(id=pa.int64(), v=held)
    made, _ = shape(old, settings, None, policy={}, may_drop=True)
    new = schema_of(id=pa.int64(), v=comes)
    found, _ = shape(new, settings, made.schema, policy=IGNORE, may_drop=True)
    return found


def placed(kind: pa.DataType, *changes: Change) -> TableChanges:
    found = changes_of(schema_of(id=pa.int64(), v=kind), *changes)
    offsets = pa.array(range(len(changes)), pa.int64())
    return replace(found, log_partition=PLACE, log_offsets=offsets)


@pytest.mark.parametrize(
    ("held", "comes", "same", "other"),
    [
        (pa.float32(), pa.float64(), 0.5, 0.1),
        (pa.decimal128(10, 2), pa.float64(), 1.25, 1.125),
        (pa.decimal128(10, 2), pa.decimal128(12, 4), Decimal("1.2500"), Decimal("1.2399")),
        (pa.float64(), pa.decimal128(20, 4), Decimal("1.25"), Decimal("1234567890123456.7891")),
        (pa.date32(), pa.timestamp("us"), 0, 1),
        (pa.decimal128(10, 2), pa.int64(), 5, 10**8),
        (pa.int32(), pa.struct([("a", pa.int32())]), None, {"a": 1}),
    ],
    ids=str,
)
def test_a_value_that_would_be_another_in_a_type_that_stays_is_rejected(
    held: pa.DataType, comes: pa.DataType, same: object, other: object
) -> None:
    layout = layout_of(held, comes)
    fitting = placed(comes, ("c", {"id": 1, "v": same}), ("c", {"id": 2, "v": None}))
    mixed = placed(comes, ("c", {"id": 3, "v": same}), ("c", {"id": 4, "v": other}))

    found = layout.conform(fitting).column("v")
    with pytest.raises(RecordsRejected) as caught:
        layout.conform(mixed)

    assert found.type == held and found.is_valid().to_pylist() == [same is not None, False]
    why, _, told = caught.value.reasons[1].partition(": the value is ")
    assert why == f"column 'v' does not fit into {held}" and str(other) not in told
    assert told in ("a number with a fraction", "a whole number", "a moment", "an object")


def test_only_a_table_of_all_changes_wants_the_values_of_a_deleted_row() -> None:
    gone = placed(pa.float64(), ("d", {"id": 1, "v": 0.1}))

    mirrored = layout_of(pa.float32(), pa.float64()).conform(gone)
    with pytest.raises(RecordsRejected):
        layout_of(pa.float32(), pa.float64(), mode="append").conform(gone)

    assert mirrored.select(["id", "v"]).to_pylist() == [{"id": 1, "v": None}]


def test_a_type_that_holds_the_new_one_takes_all_of_its_values() -> None:
    layout = layout_of(pa.int64(), pa.int32())

    found = layout.conform(placed(pa.int32(), ("c", {"id": 1, "v": 2**31 - 1})))

    assert not layout.loose
    assert found.column("v").to_pylist() == [2**31 - 1]
