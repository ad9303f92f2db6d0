"""Labels of enums in streamed rows."""

import pyarrow as pa
import pyarrow.compute as pc

from headwater.connectors.postgres.events.captured_relation import CapturedRelation
from headwater.connectors.postgres.types.column_reader import UNAVAILABLE
from headwater.connectors.postgres.types.type_map import ENUM
from headwater.connectors.postgres.wal.wal_batch import RowChanges


def labels_of(rows: pa.RecordBatch, capture: CapturedRelation) -> dict[int, set[str]]:
    """Returns the labels by the types of their columns; lists contain several."""
    found: dict[int, set[str]] = {}
    for plan, place, values in zip(capture.plans, capture.places, rows.columns, strict=True):
        if plan.column.semantic != ENUM:
            continue
        while pa.types.is_list(values.type):
            values = values.flatten()
        names = {*pc.unique(values).drop_null().to_pylist()} - {UNAVAILABLE}
        found.setdefault(capture.relation.columns[place].type_oid, set()).update(names)
    return found


def has_new_labels(part: RowChanges, capture: CapturedRelation) -> bool:
    """Whether an enum has a value that is unknown since its last look-up."""
    for plan, place in zip(capture.plans, capture.places, strict=True):
        if plan.column.semantic != ENUM:
            continue
        labels = pa.array(plan.column.parameters["allowed"].split(","), pa.string())
        values = pc.unique(part.rows[place]).drop_null()
        if not pc.all(pc.is_in(values, labels)).as_py():
            return True
    return False
