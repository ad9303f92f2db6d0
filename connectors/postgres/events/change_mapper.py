"""Converts rows of the stream, in columns of text, to typed changes of a table."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headwater.connectors.postgres.events.captured_relation import CapturedRelation
from headwater.connectors.postgres.events.event_metadata import (
    EMPTY,
    CommitColumns,
    PlacedChanges,
    SourceOrigin,
)
from headwater.connectors.postgres.events.row_keys import BY_COLUMNS, WHOLE
from headwater.connectors.postgres.publication.replica_identity import identity_cure
from headwater.connectors.postgres.server.lsn import lsn_text
from headwater.connectors.postgres.wal.wal_batch import (
    DELETE,
    INSERT,
    NO_OLD,
    OLD_ROW,
    UPDATE,
    RowChanges,
    TruncateMessage,
)
from headwater.core_log.foundation.array_types import BoolArray
from headwater.core_log.foundation.errors import SourceRejected
from headwater.core_log.model.changes import Operation, TableChanges, source_times
from headwater.core_log.model.table_schema import TableSchema

OPERATIONS = np.zeros(256, np.uint8)
OPERATIONS[[INSERT, UPDATE, DELETE]] = (Operation.INSERT, Operation.UPDATE, Operation.DELETE)


class KeyNotSent(SourceRejected):
    """Changes of this table cannot be identified by a key any more."""


RESELECTED_HEADER = "headwater.reselected"
"""Names of the columns, separated by commas, that were read later from the table."""
UNAVAILABLE_HEADER = "headwater.unavailable"
"""Names of columns that are null because their values no longer exist at the source."""


def fill_from_old(part: RowChanges) -> RowChanges:
    """Takes values that an update did not change from the old row or key that came with it."""
    if not part.unchanged or part.old is None:
        return part
    rows, unchanged = list(part.rows), dict[int, BoolArray]()
    for place, mask in part.unchanged.items():
        old = part.old[place]
        known = mask & old.is_valid().to_numpy(zero_copy_only=False)
        if known.any():
            rows[place] = pc.if_else(pa.array(known), old, rows[place])
        if (left := mask & ~known).any():
            unchanged[place] = left
    return replace(part, rows=tuple(rows), unchanged=unchanged)


def to_table_changes(
    part: RowChanges, capture: CapturedRelation, commits: CommitColumns, origin: SourceOrigin
) -> PlacedChanges:
    """Returns the changes. A change of the key becomes a DELETE of the old and an INSERT of the new
    one. Values that are still `unchanged` belong to deleted rows."""
    if not len(part):
        return PlacedChanges(_nothing(capture), part.transactions)
    operations = OPERATIONS[part.operations]
    rows = _with_placeholders(capture.read(part.rows), part, capture)
    before, moved, old = None, None, None
    if part.old is not None:
        moved = moved_keys(part, capture)
        old = capture.read(part.old)
        before = _before(part, old, moved, capture)
    is_gone = _is_gone(part)
    places: npt.NDArray[np.int64] | None = None
    moves = None
    headers = _headers(part)
    if (moved is not None and moved.any()) or is_gone is not None:
        halves = _Halves.of(len(part), moved, is_gone)
        places = halves.places
        if old is not None and halves.is_old.any():
            both = pa.Table.from_batches([rows, old]).combine_chunks()
            picks = np.where(halves.is_old, len(part) + places, places)
            rows = both.take(pa.array(picks)).to_batches()[0]
        else:
            rows = rows.take(pa.array(places))
        operations = halves.operations(operations)
        moves = halves.moves
        taken = pa.array(places)
        before = None if before is None else before.take(taken)
        of_rows = pa.array(places, mask=halves.is_old)
        headers = {name: column.take(of_rows) for name, column in headers.items()}
    _check_keys(rows, operations, part, capture)
    lsns, transactions, indexes = part.lsns, part.transactions, part.indexes
    if places is not None:
        lsns, transactions, indexes = lsns[places], transactions[places], indexes[places]
        if not len(places):
            return PlacedChanges(_nothing(capture), transactions)
    lsn_column = pa.array(lsns)
    changes = TableChanges(
        schema=capture.schema,
        rows=rows,
        operations=pa.array(operations),
        source=origin.block(
            capture.schema.table,
            commits.times(transactions),
            snapshot="false",
            sequence=commits.sequences(transactions, lsn_column),
            xid=commits.xids(transactions),
            lsn=lsn_column if len(lsns) > 1 else int(lsns[0]),
        ),
        commits=commits.names(transactions),
        indexes=pa.array(indexes),
        before=before,
        moves=moves,
        headers=headers,
    )
    return PlacedChanges(changes, transactions)


def truncate_changes(
    schema: TableSchema, origin: SourceOrigin, lsn: int, now_us: int
) -> TableChanges:
    """Returns a truncate that is not in the stream."""
    return TableChanges(
        schema=schema,
        rows=_one_row_of_nulls(schema),
        operations=pa.array([Operation.TRUNCATE], pa.uint8()),
        source=origin.block(
            schema.table,
            source_times(now_us),
            snapshot="true",
            sequence=f'[null,"{lsn}"]',
            xid=None,
            lsn=lsn,
        ),
        commits=lsn_text(lsn),
    )


def truncate(
    event: TruncateMessage, capture: CapturedRelation, commits: CommitColumns, origin: SourceOrigin
) -> TableChanges:
    schema, place = capture.schema, np.array([event.transaction], np.int64)
    lsn = pa.array([event.lsn], pa.int64())
    return TableChanges(
        schema=schema,
        rows=_one_row_of_nulls(schema),
        operations=pa.array([Operation.TRUNCATE], pa.uint8()),
        source=origin.block(
            schema.table,
            commits.times(place),
            snapshot="false",
            sequence=commits.sequences(place, lsn),
            xid=commits.xids(place),
            lsn=event.lsn,
        ),
        commits=commits.names(place),
        indexes=pa.array([event.index], pa.int64()),
    )


def _one_row_of_nulls(schema: TableSchema) -> pa.RecordBatch:
    nulls = [pa.nulls(1, field.type) for field in schema.arrow]
    return pa.RecordBatch.from_arrays(nulls, schema=schema.arrow)


def _with_placeholders(
    rows: pa.RecordBatch, part: RowChanges, capture: CapturedRelation
) -> pa.RecordBatch:
    if not part.placeholders:
        return rows
    columns = rows.columns
    for place, mask in part.placeholders.items():
        at = capture.places.index(place)
        columns[at] = pc.if_else(pa.array(mask), capture.plans[at].unavailable, columns[at])
    return pa.RecordBatch.from_arrays(columns, schema=rows.schema)


def moved_keys(part: RowChanges, capture: CapturedRelation) -> BoolArray:
    """Returns updates whose key has changed, or is null now."""
    moved = np.zeros(len(part), np.bool_)
    if part.old is None:
        return moved
    for place in capture.key_places:
        now, before = part.rows[place], part.old[place]
        differs = pc.not_equal(now, before).fill_null(False)
        if now.null_count:
            differs = pc.or_(differs, pc.and_(now.is_null(), before.is_valid()))
        moved |= differs.to_numpy(zero_copy_only=False)
    moved &= (part.operations == UPDATE) & (part.old_kinds != NO_OLD)
    return moved


def _before(
    part: RowChanges, old: pa.RecordBatch, moved: BoolArray, capture: CapturedRelation
) -> pa.StructArray | None:
    known = (part.old_kinds == OLD_ROW) & (part.operations == UPDATE) & ~moved
    if capture.part_places and known.any():
        known &= _is_more_than(part, capture.part_places)
    if not known.any():
        return None
    return pa.StructArray.from_arrays(old.columns, fields=list(old.schema), mask=pa.array(~known))


def _is_more_than(part: RowChanges, places: Sequence[int]) -> BoolArray:
    """Whether other columns of the row before were sent, too. A null may otherwise be a column that
    a partition did not send: the stream marks both kinds of rows alike if the table sends all
    columns."""
    assert part.old is not None
    others = [text for place, text in enumerate(part.old) if place not in places]
    found: BoolArray = np.logical_or.reduce(
        [np.zeros(len(part), np.bool_)]
        + [text.is_valid().to_numpy(zero_copy_only=False) for text in others]
    )
    return found


def _is_gone(part: RowChanges) -> BoolArray | None:
    """Returns updates with a value that is missing for ever, because the row is gone: its delete
    follows."""
    if not part.unchanged:
        return None
    found: BoolArray = np.logical_or.reduce(list(part.unchanged.values()))
    return found


@dataclass(frozen=True, slots=True)
class _Halves:
    """The change of each record, as changed keys are two records."""

    places: npt.NDArray[np.int64]
    is_old: BoolArray
    """The first half of a changed key: the known values of the row before."""
    is_new: BoolArray
    """The second half; absent if the row no longer exists."""

    @classmethod
    def of(cls, count: int, moved: BoolArray | None, is_gone: BoolArray | None) -> "_Halves":
        moved = np.zeros(count, np.bool_) if moved is None else moved
        stays = np.ones(count, np.bool_) if is_gone is None else ~is_gone
        copies = stays.astype(np.int64) + moved
        places = np.repeat(np.arange(count), copies)
        is_first = np.ones(len(places), np.bool_)
        is_first[1:] = places[1:] != places[:-1]
        is_old = moved[places] & is_first
        return cls(places, is_old, moved[places] & ~is_first)

    def operations(self, before: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
        found = before[self.places]
        found[self.is_old], found[self.is_new] = Operation.DELETE, Operation.INSERT
        return found

    @property
    def moves(self) -> pa.BooleanArray | None:
        """Returns the moves. The two halves are adjacent; a delete without its other half is an
        ordinary delete."""
        if not self.is_new.any():
            return None
        first = np.zeros(len(self.places), np.bool_)
        first[:-1] = self.is_new[1:]
        return pa.array(first | self.is_new)


def _headers(part: RowChanges) -> dict[str, pa.BinaryArray]:
    """Returns headers with the names of columns that were read later, and of unavailable ones."""
    return {
        header: _names(part, masks)
        for header, masks in (
            (RESELECTED_HEADER, part.reselected),
            (UNAVAILABLE_HEADER, part.unavailable),
        )
        if masks
    }


def _names(part: RowChanges, masks: Mapping[int, BoolArray]) -> pa.BinaryArray:
    """Returns the names of the columns of each row, separated by commas; null if there are none."""
    columns = part.relation.columns
    names = [
        pc.if_else(pa.array(mask), f"{columns[place].name},", "")
        for place, mask in sorted(masks.items())
    ]
    joined = pc.utf8_slice_codeunits(pc.binary_join_element_wise(*names, EMPTY), 0, -1)
    has_any = np.logical_or.reduce(list(masks.values()))
    return pc.if_else(pa.array(has_any), joined, None).cast(pa.binary())


def _check_keys(
    rows: pa.RecordBatch,
    operations: npt.NDArray[np.uint8],
    part: RowChanges,
    capture: CapturedRelation,
) -> None:
    """Raises unless a deleted row has its key and a row with a changed key has its former one,
    which the server sends if it is in the replica identity. A null in it counts if all columns
    were sent."""
    columns, are_some_sent, is_unsure = capture.relation.columns, False, False
    is_update = part.operations == UPDATE
    if is_update.any():
        # A table without a key whose partitions have one flags no column; the partitions' keys are
        # sent.
        is_by_columns = capture.relation.identity in BY_COLUMNS
        are_some_sent = is_by_columns and any(column.is_identity for column in columns)
        is_alone = is_update & (part.old_kinds == NO_OLD)
        is_unsure = bool(capture.keyless_parts) and bool(is_alone.any())
    is_whole = capture.relation.identity == WHOLE and not capture.keyless_parts
    for name, place in zip(capture.schema.key, capture.key_places, strict=True):
        is_unseen = is_unsure or (are_some_sent and not columns[place].is_identity)
        if rows.column(name).null_count and not is_whole:
            is_null = rows.column(name).is_null().to_numpy(zero_copy_only=False)
            is_unseen |= bool((is_null & (operations == Operation.DELETE)).any())
        if is_unseen:
            table = capture.schema.table
            raise KeyNotSent(
                f"the server does not say which row went or changed, by column {name} of its key",
                hint=identity_cure(capture.keyless_parts or [table]),
            )


def _nothing(capture: CapturedRelation) -> TableChanges:
    schema = capture.schema
    rows = pa.RecordBatch.from_pylist([], schema=schema.arrow)
    return TableChanges(schema, rows, pa.array([], pa.uint8()), {"ts_us": 0})
