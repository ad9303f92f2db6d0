"""What becomes of a target's table follows the policy, and no type is ever changed silently."""

import pyarrow as pa
import pytest

from headwater.core_log.foundation.errors import SchemaRefused
from headwater.core_log.model.table_schema import Column
from headwater.sinks.evolution import ACTIONS, EvolutionAction, holds, steps
from tests.slices import schema_of

PRESENT = (Column("id", pa.int64(), is_nullable=False), Column("note", pa.int32()))
CHANGES = {
    "add_column": schema_of(id=pa.int64(), note=pa.int32(), total=pa.float64()),
    "drop_column": schema_of(id=pa.int64()),
    "widen_type": schema_of(id=pa.int64(), note=pa.int64()),
    "change_type": schema_of(id=pa.int64(), note=pa.string()),
}


@pytest.mark.parametrize("kind", CHANGES)
@pytest.mark.parametrize("policy", ["evolve", "lenient", "ignore", "fail"])
def test_every_kind_of_change_does_what_its_policy_says(kind: str, policy: str) -> None:
    wanted, action = CHANGES[kind], ACTIONS[kind].get(policy)

    if action is None:
        with pytest.raises(SchemaRefused) as refusal:
            steps(wanted.table, present=PRESENT, wanted=wanted, policy={kind: policy})
        assert refusal.value.facts["table"] == "public.orders"
    else:
        (step,) = steps(wanted.table, present=PRESENT, wanted=wanted, policy={kind: policy})
        assert (step.kind, step.action) == (kind, action)


def test_a_column_that_may_be_null_now_loses_its_constraint() -> None:
    present = (PRESENT[0], Column("note", pa.int32(), is_nullable=False))
    wanted = schema_of(id=pa.int64(), note=pa.int32())

    (step,) = steps(wanted.table, present=present, wanted=wanted, policy={})

    assert (step.kind, step.column, step.action) == (
        "drop_not_null",
        "note",
        EvolutionAction.LOOSEN,
    )


def test_a_renamed_column_is_one_that_went_and_one_that_came() -> None:
    wanted = schema_of(id=pa.int64(), remark=pa.int32())

    found = steps(wanted.table, present=PRESENT, wanted=wanted, policy={})

    assert [(step.column, step.action) for step in found] == [
        ("remark", EvolutionAction.ADD),
        ("note", EvolutionAction.DROP),
    ]


@pytest.mark.parametrize(
    ("wide", "narrow"),
    [
        (pa.int64(), pa.int32()),
        (pa.int64(), pa.uint32()),
        (pa.decimal128(12, 2), pa.decimal128(10, 2)),
        (pa.decimal128(20, 0), pa.uint64()),
        (pa.decimal256(50, 10), pa.decimal128(38, 8)),
        (pa.float64(), pa.float32()),
        (pa.float64(), pa.int32()),
        (pa.timestamp("us"), pa.timestamp("ms")),
        (pa.time64("us"), pa.time32("ms")),
        (pa.string(), pa.large_string()),
    ],
    ids=str,
)
def test_a_type_that_keeps_every_value_holds_the_narrower_one(
    wide: pa.DataType, narrow: pa.DataType
) -> None:
    assert holds(wide, narrow)
    assert not holds(narrow, wide) or wide == pa.string()


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (pa.uint64(), pa.int64()),
        (pa.decimal128(10, 2), pa.decimal128(10, 3)),
        (pa.timestamp("us"), pa.timestamp("us", "UTC")),
        (pa.string(), pa.int32()),
        (pa.string(), pa.binary()),
        (pa.date32(), pa.timestamp("us")),
        (pa.bool_(), pa.int8()),
        (pa.float32(), pa.int32()),
    ],
    ids=str,
)
def test_two_other_types_hold_neither_the_other(one: pa.DataType, other: pa.DataType) -> None:
    assert not holds(one, other)
    assert not holds(other, one)
