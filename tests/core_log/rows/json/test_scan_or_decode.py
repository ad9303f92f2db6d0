"""What a format scans in place is what it decodes, whichever format and whatever is compiled."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.core_log.model.table_schema import Column
from headwater.core_log.records.record_views import RecordField
from headwater.core_log.rows.codec import codec_for
from headwater.core_log.rows.json import scanner
from headwater.core_log.rows.settings import WireSettings
from tests.core_log.rows.tables import NOW_US, SOURCE, changes, table

ROWS = 600
"""Enough for the compiled code."""
SCHEMA = table(
    Column("id", pa.int64(), is_nullable=False),
    Column("note", pa.string()),
    Column("share", pa.float64()),
    Column("total", pa.decimal128(20, 3)),
    Column("at", pa.timestamp("us")),
    key=("id",),
)
NOTES = st.none() | st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
pytest.importorskip("numba")
SHARES = st.none() | st.floats()


@settings(max_examples=12, deadline=None)
@given(st.lists(NOTES, min_size=1, max_size=9), st.lists(SHARES, min_size=1, max_size=9), st.data())
@pytest.mark.parametrize("value", ["debezium-json", "flat-json"])
@pytest.mark.parametrize("has_schemas", [False, True])
def test_rows_scanned_in_place_are_the_rows_decoded(
    value: str,
    has_schemas: bool,
    notes: list[str | None],
    shares: list[float | None],
    data: st.DataObject,
) -> None:
    wire = WireSettings.model_validate({"value": value, "has_schemas": has_schemas})
    operations = data.draw(st.lists(st.integers(0, 3), min_size=1, max_size=5))
    columns = [
        pa.array(np.arange(ROWS)),
        pa.array([notes[row % len(notes)] for row in range(ROWS)], pa.string()),
        pa.array([shares[row % len(shares)] for row in range(ROWS)], pa.float64()),
        pa.array(np.arange(ROWS) - 300).cast(pa.decimal128(38, 3)).cast(pa.decimal128(20, 3)),
        pa.array(np.arange(ROWS) * 10**12, pa.timestamp("us")),
    ]
    times = pa.array(1_700_000_000_000_000 + np.arange(ROWS))
    whats = [operations[row % len(operations)] for row in range(ROWS)]
    written = changes(SCHEMA, columns, whats, source=SOURCE | {"ts_us": times})
    codec = codec_for(wire, topic="t")
    encoded = codec.encode(written, now_us=NOW_US)
    values = encoded.values.drop_null()
    scanner._scan().wait_until_loaded()
    scanner._scan().wait()

    scanned = codec.scan(RecordField.of(values), SCHEMA)

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HEADWATER_SPEED", "python")
        slow = codec_for(wire, topic="t").decode(pa.nulls(len(values), pa.binary()), values, SCHEMA)
    if scanned is None:
        assert has_schemas
        return
    assert repr(scanned.rows.to_pydict()) == repr(slow.rows.to_pydict())
    assert scanned.operations == slow.operations
    assert scanned.committed_us == slow.committed_us
