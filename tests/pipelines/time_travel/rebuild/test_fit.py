"""Values of a former form in the columns of the present one: what does not fit is null."""

from dataclasses import replace

import pyarrow as pa
import pytest

from headwater.core_log.model.changes import Operation, TableChanges
from headwater.core_log.model.table_schema import Column
from headwater.pipelines.time_travel.rebuild.replay import fit
from tests.slices import schema_of

JSON, UUID = "io.debezium.data.Json", "io.debezium.data.Uuid"


@pytest.mark.parametrize(
    ("former", "now", "is_kept"),
    [
        ("", "", True),
        (UUID, "", True),
        (UUID, UUID, True),
        ("", "io.debezium.data.Enum", True),
        ("", UUID, False),
        (UUID, JSON, False),
        ("io.debezium.data.Enum", UUID, False),
    ],
)
def test_a_text_fits_a_column_that_takes_every_text_or_its_own_kind(
    former: str, now: str, is_kept: bool
) -> None:
    before = schema_of("public.t", id=pa.int64())
    text = Column("v", pa.string())
    forms = [
        replace(before, columns=(*before.columns, replace(text, semantic=each)))
        for each in (former, now)
    ]
    rows = pa.RecordBatch.from_pydict({"id": [1], "v": ["x"]}, schema=forms[0].arrow)

    operations = pa.array([Operation.INSERT], pa.uint8())

    fitted = fit(TableChanges(forms[0], rows, operations, source={}), forms[1])

    assert fitted.rows.to_pylist() == [{"id": 1, "v": "x" if is_kept else None}]
