"""Emits rows again whose key another row had, so that the newest record of a key is its row."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from headwater.connectors.postgres.events.captured_relation import CapturedRelation
from headwater.connectors.postgres.events.change_mapper import OPERATIONS, moved_keys
from headwater.connectors.postgres.events.toast import ToastFiller
from headwater.connectors.postgres.wal.wal_batch import (
    INSERT,
    NO_OLD,
    UPDATE,
    RowChanges,
    Transactions,
)
from headwater.core_log.foundation.array_types import BoolArray, Int64Array
from headwater.core_log.model.changes import Operation

KEYS_MAX = 200_000
BYTES_MAX = 64 << 20
"""Limit of remembered bytes of one transaction; beyond it rows are read from the table by their
keys."""

Text = str | None
Texts = tuple[Text, ...]


@dataclass(frozen=True, slots=True)
class _Place:
    """The place of an inserted row."""

    part: RowChanges
    at: int
    image: Texts
    """Identifies it among rows of its key: its columns of the replica identity."""


@dataclass(slots=True)
class _Seen:
    """The changes of one table by one transaction so far."""

    commit_lsn: int
    relation: object
    made: dict[Texts, list[_Place]] = field(default_factory=dict)
    """Rows that it inserted and that still exist, by their keys."""
    went: set[Texts] = field(default_factory=set)
    """Keys whose row from before the transaction is gone."""
    sources: set[int] = field(default_factory=set)
    bytes: int = 0
    is_too_much: bool = False

    def remember(self, part: RowChanges) -> None:
        if id(part) not in self.sources:
            self.sources.add(id(part))
            self.bytes += sum(column.nbytes for column in part.rows)
        if self.bytes > BYTES_MAX or len(self.made) + len(self.went) > KEYS_MAX:
            self.is_too_much = True
            self.made, self.went = {}, set()


@dataclass(slots=True)
class _Again:
    """A row to emit again, and the change after which it comes."""

    behind: list[int] = field(default_factory=list)
    rows: list[_Place | Texts] = field(default_factory=list)
    """A known row, or the key of one that must be read."""

    def say(self, behind: int, row: _Place | Texts) -> None:
        self.behind.append(behind)
        self.rows.append(row)


class RepeatedKeys:
    """Follows the stream; tables whose keys are always unique cost nothing.

    A DEFERRABLE constraint is checked at the end of its transaction, and a key chosen in the file
    has none. So a key can get its new row before the old one is deleted, and the last change in the
    stream is then a delete.
    """

    def __init__(self, toast: ToastFiller) -> None:
        self._toast = toast
        self._seen: dict[int, _Seen] = {}
        """By table, of the transaction that last changed it."""

    async def whole(
        self, part: RowChanges, capture: CapturedRelation, transactions: Transactions
    ) -> RowChanges:
        """Returns the changes, and after some of them rows that still exist."""
        if capture.has_unique_keys or not capture.key_places or not len(part):
            return part
        again = self._follow(part, capture, transactions)
        return await self._said_again(part, capture, again) if again.behind else part

    def forget(self, oid: int | None = None) -> None:
        """Forgets one table, or all, once no more changes can follow."""
        if oid is None:
            self._seen.clear()
        else:
            self._seen.pop(oid, None)

    def _follow(
        self, part: RowChanges, capture: CapturedRelation, transactions: Transactions
    ) -> _Again:
        again = _Again()
        moved = moved_keys(part, capture)
        operations = OPERATIONS[part.operations]
        makes = (operations == Operation.INSERT) | moved
        takes = (operations == Operation.DELETE) | moved
        numbers, firsts = np.unique(part.transactions, return_index=True)
        lasts = np.append(firsts[1:], len(part))
        for number, start, end in zip(numbers, firsts.tolist(), lasts.tolist(), strict=True):
            commit_lsn = int(transactions.commit_lsns[number])
            seen = self._seen.get(part.relation.oid)
            is_last = end == len(part)  # it may continue in the next batch
            if seen is None or seen.commit_lsn != commit_lsn:
                if not makes[start:end].any() or not (is_last or takes[start:end].any()):
                    continue
                seen = self._seen[part.relation.oid] = _Seen(commit_lsn, part.relation)
            if seen.relation != part.relation or capture.part_places:
                seen.is_too_much = True  # rows of two schemas cannot be compared
            _Steps(part, capture, moved, seen, again).take(start, end)
        return again

    async def _said_again(
        self, part: RowChanges, capture: CapturedRelation, again: _Again
    ) -> RowChanges:
        keys = list(dict.fromkeys(row for row in again.rows if not isinstance(row, _Place)))
        read, place_of = await self._toast.rows(part, capture, keys)
        known = {id(part): part}
        known |= {id(row.part): row.part for row in again.rows if isinstance(row, _Place)}
        sources = [*known.values(), *read]
        sizes = [len(source) for source in sources]
        starts = dict(zip(known, np.cumsum([0, *sizes]).tolist(), strict=False))
        start_read = sum(len(source) for source in known.values())
        behind, picks = list[int](), list[int]()
        for at, row in zip(again.behind, again.rows, strict=True):
            if isinstance(row, _Place):
                place: int | None = starts[id(row.part)] + row.at
            else:
                place = start_read + place_of[row] if row in place_of else None
            if place is not None:
                behind.append(at)
                picks.append(place)
        return _with_rows(part, sources, np.array(behind, np.int64), picks)


@dataclass(slots=True)
class _Steps:
    """The changes of one transaction, one after another."""

    part: RowChanges
    capture: CapturedRelation
    moved: BoolArray
    seen: _Seen
    again: _Again

    def take(self, start: int, end: int) -> None:
        part, identity = self.part, self._identity
        rows = slice(start, end)
        keys = _texts(part.rows, self.capture.key_places, rows)
        images = _texts(part.rows, identity, rows)
        has_old = part.old is not None and bool((part.old_kinds[rows] != NO_OLD).any())
        old_keys, old_images = keys, images
        if has_old and part.old is not None:
            old_keys = _texts(part.old, self.capture.key_places, rows)
            old_images = _texts(part.old, identity, rows)
        lost = np.logical_or.reduce([np.zeros(len(part), np.bool_), *part.unchanged.values()])
        for at in range(start, end):
            here, operation = at - start, part.operations[at]
            is_update = operation == UPDATE
            comes_with_old = is_update and part.old_kinds[at] != NO_OLD
            if self.moved[at]:
                self._goes(at, old_keys[here], old_images[here])
            elif operation != INSERT and not is_update:
                self._goes(at, keys[here], images[here])
            if operation == INSERT or self.moved[at]:
                if not lost[at]:
                    self._comes(at, keys[here], images[here])
            elif is_update and not lost[at]:
                before = old_images[here] if comes_with_old else images[here]
                self._changes(at, keys[here], before, images[here])

    @property
    def _identity(self) -> Sequence[int]:
        """Returns the replica identity. That of a partitioned table may have no column, even if
        those of its partitions do."""
        columns = self.capture.relation.columns
        found = [place for place, column in enumerate(columns) if column.is_identity]
        return found or self.capture.key_places

    def _comes(self, at: int, key: Texts, image: Texts) -> None:
        if not self.seen.is_too_much:
            self.seen.made.setdefault(key, []).append(_Place(self.part, at, image))
            self.seen.remember(self.part)

    def _goes(self, at: int, key: Texts, image: Texts) -> None:
        if self.seen.is_too_much:
            self.again.say(at, key)
            return
        made, is_gone = self.seen.made.get(key, []), key in self.seen.went
        found = next((place for place in made if place.image == image), None)
        if found is not None:
            made.remove(found)
        else:
            self.seen.went.add(key)
        if made:
            self.again.say(at, made[-1])
            self.seen.remember(self.part)
            return
        self.seen.made.pop(key, None)
        self.seen.remember(self.part)
        if is_gone == (found is None):
            # It is not known whether there was a row before, or an unknown one was deleted.
            self.again.say(at, key)

    def _changes(self, at: int, key: Texts, before: Texts, image: Texts) -> None:
        made = self.seen.made.get(key, [])
        for number, place in enumerate(made):
            if place.image == before:
                made[number] = _Place(self.part, at, image)
                self.seen.remember(self.part)
                return


def _texts(columns: Sequence[pa.StringArray], places: Sequence[int], rows: slice) -> list[Texts]:
    if not places:  # a partitioned table flags no column if its partitions have keys of their own
        return [()] * (rows.stop - rows.start)
    found = [columns[place][rows].to_pylist() for place in places]
    return list(zip(*found, strict=True))


def _with_rows(
    part: RowChanges, sources: Sequence[RowChanges], behind: Int64Array, picks: Sequence[int]
) -> RowChanges:
    """Returns the changes with the rows. `picks` are indices into all sources in order, the changes
    first."""
    chosen = np.array(picks, np.int64)
    count = len(part)
    order = np.argsort(np.concatenate((np.arange(count), behind)), kind="stable")
    places, is_again = np.concatenate((np.arange(count), chosen))[order], order >= count
    of_changes = np.concatenate((np.arange(count), behind))[order]
    taken, own = pa.array(places), pa.array(of_changes, mask=is_again)
    rows = zip(*(source.rows for source in sources), strict=True)
    sizes = [len(source) for source in sources]

    def masks(each: Sequence[Mapping[int, BoolArray]]) -> dict[int, BoolArray]:
        names = sorted(set().union(*each))
        found = {name: _is_joined(each, name, sizes)[places] for name in names}
        return {name: mask for name, mask in found.items() if mask.any()}

    operations, old_kinds = part.operations[of_changes], part.old_kinds[of_changes]
    operations[is_again], old_kinds[is_again] = INSERT, NO_OLD
    return RowChanges(
        part.relation,
        operations,
        tuple(pa.concat_arrays(columns).take(taken) for columns in rows),
        masks([source.unchanged for source in sources]),
        None if part.old is None else tuple(column.take(own) for column in part.old),
        old_kinds,
        part.lsns[of_changes],
        part.transactions[of_changes],
        part.indexes[of_changes],
        any(source.has_unreadable for source in sources),
        masks([source.reselected for source in sources]),
        masks([source.placeholders for source in sources]),
        masks([source.unavailable for source in sources]),
    )


def _is_joined(
    each: Sequence[Mapping[int, BoolArray]], name: int, sizes: Sequence[int]
) -> BoolArray:
    found = [
        masks.get(name, np.zeros(size, np.bool_)) for masks, size in zip(each, sizes, strict=True)
    ]
    return np.concatenate(found)
