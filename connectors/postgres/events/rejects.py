"""Rejects rows with values that no column can hold, so that one such row does not stop the
source."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from headwater.connectors.postgres.events.captured_relation import CapturedRelation
from headwater.connectors.postgres.events.event_metadata import CommitColumns
from headwater.connectors.postgres.server.connection import NOT_UTF8
from headwater.connectors.postgres.types.column_reader import ColumnPlan
from headwater.connectors.postgres.wal.wal_batch import DELETE, OLD_KEY, UNREADABLE, RowChanges
from headwater.core_log.foundation.array_types import BoolArray
from headwater.core_log.model.changes import ChangeBatch, Reject
from headwater.core_log.model.table_schema import TableId
from headwater.core_log.rows.rejects import NAMED_MAX, failing_rows, misfit

DIGEST_DIGITS = 16


@dataclass(slots=True)
class RejectedRows:
    """Rejected rows that wait for the next batch.

    That is never a later batch than that of the row's neighbours, so that none is lost. A row that
    is rejected twice has the same place, and so is the same dead letter.
    """

    _rejects: list[Reject] = field(default_factory=list)

    def add(self, rejects: Sequence[Reject]) -> None:
        self._rejects += rejects

    def with_rejects(self, batch: ChangeBatch) -> ChangeBatch:
        if not self._rejects:
            return batch
        found, self._rejects = tuple(self._rejects), []
        return replace(batch, rejects=batch.rejects + found)


def unfit(read: Callable[[pa.Array], pa.Array], values: pa.Array) -> BoolArray:
    """Returns which values do not fit their type, or are not valid text."""
    found = _unreadable(values)
    while failed := _failing(read, _without(values, found)):
        found[list(failed)] = True
    return found


def _failing(read: Callable[[pa.Array], pa.Array], values: pa.Array) -> dict[int, Exception]:
    return failing_rows(
        len(values), lambda start, end: read(values.slice(start, end - start)), rows_max=NAMED_MAX
    )


def _unreadable(values: pa.Array) -> BoolArray:
    if values.type != pa.string():
        return np.zeros(len(values), np.bool_)
    found = pc.starts_with(values, UNREADABLE).fill_null(False)
    return np.array(found.to_numpy(zero_copy_only=False))


def split_rejects(
    part: RowChanges, capture: CapturedRelation, commits: CommitColumns
) -> tuple[RowChanges, list[Reject]]:
    """Returns changes that can be read, and the others.

    Only the key of a deleted row is required: an unfit value elsewhere in it is left out. A row
    before with an unfit value keeps only its key, since the value was not null.
    """
    rows, old = list(part.rows), None if part.old is None else list(part.old)
    old_kinds = part.old_kinds
    problems: dict[int, BoolArray] = {}
    for plan, place in zip(capture.plans, capture.places, strict=True):
        is_bad = unfit(plan.read, rows[place])
        if is_bad.any():
            rows[place] = _without(rows[place], is_bad)
            if place not in capture.key_places:
                is_bad = is_bad & (part.operations != DELETE)
            problems[place] = is_bad
        if old is not None and (is_bad := unfit(plan.read, old[place])).any():
            old[place] = _without(old[place], is_bad)
            old_kinds = np.where(is_bad, OLD_KEY, old_kinds).astype(np.uint8)
    columns = part.relation.columns
    shown = sorted({*capture.key_places, *problems})
    texts = {columns[place].name: part.rows[place] for place in shown}
    named = {columns[place].name: is_bad for place, is_bad in problems.items()}
    kinds = {column.name: column.type for column in capture.schema.columns}
    is_lost = _any(named, len(part))
    names = commits.names(part.transactions)
    assert isinstance(names, str | pa.Array), "commits have names"
    rejects = [
        _reject(
            capture.schema.table,
            texts,
            named,
            kinds,
            capture.schema.key,
            row,
            at=f"{names if isinstance(names, str) else names[row]}#{part.indexes[row]}",
        )
        for row in np.flatnonzero(is_lost).tolist()
    ]
    readable = replace(
        part,
        rows=tuple(rows),
        old=None if old is None else tuple(old),
        old_kinds=old_kinds,
        has_unreadable=False,
    )
    return readable.filter(~is_lost), rejects


def sifted_rows(
    sent: Sequence[pa.Array], plans: Sequence[ColumnPlan], table: TableId, key: Collection[str]
) -> tuple[list[pa.Array], list[Reject], dict[str, pa.Array]]:
    """Does the same for copied rows, and returns the keys of rejected rows, null if the key itself
    cannot be read."""
    problems = {
        plan.column.name: is_bad
        for plan, values in zip(plans, sent, strict=True)
        if (is_bad := unfit(plan.read_copied, values)).any()
    }
    is_lost = _any(problems, len(sent[0]))
    lost = pa.array(is_lost)
    shown = {
        plan.column.name: plan.text_of(values.filter(lost))
        for plan, values in zip(plans, sent, strict=True)
        if plan.column.name in key or plan.column.name in problems
    }
    named = {name: is_bad[is_lost] for name, is_bad in problems.items()}
    kinds = {plan.column.name: plan.column.type for plan in plans}
    rejects = []
    for row in range(int(is_lost.sum())):
        found = _reject(table, shown, named, kinds, key, row, at="")
        # Such a row has no LSN: its content identifies it, which stays the same.
        digest = sha256(found.content).hexdigest()[:DIGEST_DIGITS]
        rejects.append(replace(found, at=f"rows#{digest}"))
    keep, nothing = pa.array(~is_lost), np.zeros(len(lost), np.bool_)
    keys = {
        plan.column.name: plan.read_copied(
            _without(values, problems.get(plan.column.name, nothing)).filter(lost)
        )
        for plan, values in zip(plans, sent, strict=True)
        if plan.column.name in key
    }
    return [values.filter(keep) for values in sent], rejects, keys


def _without(values: pa.Array, is_bad: BoolArray) -> pa.Array:
    return pc.if_else(pa.array(is_bad), pa.scalar(None, values.type), values)


def _any(problems: Mapping[str, BoolArray], count: int) -> BoolArray:
    found: BoolArray = np.logical_or.reduce([np.zeros(count, np.bool_), *problems.values()])
    return found


def _reject(
    table: TableId,
    texts: Mapping[str, pa.StringArray],
    problems: Mapping[str, BoolArray],
    kinds: Mapping[str, pa.DataType],
    key: Collection[str],
    row: int,
    *,
    at: str,
) -> Reject:
    """Returns a reject; its content is the key and the unfit values, so that nothing else of the
    row is shown."""
    bad = [name for name, is_bad in problems.items() if is_bad[row]]
    shown = {name: text[row].as_py() for name, text in texts.items() if name in (*key, *bad)}
    unreadable = [name for name in bad if shown[name].startswith(UNREADABLE)]
    content = orjson.dumps(
        {name: value and value.removeprefix(UNREADABLE) for name, value in shown.items()}
    )
    told = [misfit(f"column {name}", kinds[name], shown[name] or "") for name in bad]
    why = f"{NOT_UTF8}: {', '.join(unreadable)}" if unreadable else "; ".join(told)
    return Reject(table, content, why, at)
