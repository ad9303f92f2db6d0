"""Rows of a source or a target against the state that the log tells: which keys differ, and how."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import numpy as np
import pyarrow as pa

from core_log.log import TopicPartition
from core_log.rows.digests import Digests
from core_log.varint import Int64s
from pipelines.proving.folding import Shape, State

KEYS_KEPT = 100_000
"""Differing keys that are remembered; beyond them they are only counted."""


class Kind(Enum):
    """What is wrong with a key, seen from the side that is compared with the log."""

    CHANGED = "other values"
    MISSING = "not there, and in the log"
    EXTRA = "there, and not in the log"
    TWICE = "there more than once"


@dataclass(slots=True)
class Compared:
    """What came of it."""

    log_rows: int
    rows: int = 0
    counts: dict[Kind, int] = field(default_factory=lambda: dict.fromkeys(Kind, 0))
    keys: list[tuple[Kind, pa.RecordBatch]] = field(default_factory=list)
    """Of rows that are there: CHANGED, EXTRA and TWICE."""
    newest: dict[TopicPartition, set[int]] = field(default_factory=dict)
    """Where in the log the rows stand that the other side should have: CHANGED and MISSING."""
    missing: dict[TopicPartition, set[int]] = field(default_factory=dict)
    """Those of them that are not there at all."""
    suspects: dict[int, tuple[int, int]] = field(default_factory=dict)
    """By the digest of the key: that of the row in the log, and of the row on the other side."""

    @property
    def differing(self) -> int:
        return sum(self.counts.values())


class Comparison:
    """Feed it the rows of the other side, in any order."""

    def __init__(self, state: State, shape: Shape, *, keeps_deleted: bool = False) -> None:
        self._state, self._shape, self._keeps_deleted = state, shape, keeps_deleted
        self._seen = np.zeros(len(state), np.uint8)
        self.result = Compared(len(state))

    def take(self, rows: pa.RecordBatch) -> None:
        """`rows` are as `Shape.projected` makes them."""
        keys, digests = self._shape.digests(rows)
        places, is_known = self._state.find(keys)
        known = places[is_known]
        again = np.zeros(len(keys), np.bool_)
        again[is_known] = (self._seen[known] > 0) | ~_firsts(known)
        self._seen[known] = 1
        is_changed = is_known & ~again
        is_changed[is_known] &= self._state.rows[known] != digests[is_known]
        self.result.rows += rows.num_rows
        self._note(Kind.TWICE, again, rows, keys, digests, places)
        self._note(Kind.CHANGED, is_changed, rows, keys, digests, places)
        if not self._keeps_deleted:
            self._note(Kind.EXTRA, ~is_known, rows, keys, digests, places)

    def finish(self) -> Compared:
        missing = np.flatnonzero(self._seen == 0)
        self.result.counts[Kind.MISSING] += len(missing)
        for place in missing[: self._room].tolist():
            self._remember(place, self.result.missing)
            self._remember(place, self.result.newest)
            self.result.suspects[int(self._state.keys[place])] = int(self._state.rows[place]), 0
        return self.result

    @property
    def _room(self) -> int:
        return max(KEYS_KEPT - len(self.result.suspects), 0)

    def _note(
        self,
        kind: Kind,
        mask: Any,
        rows: pa.RecordBatch,
        keys: Digests,
        digests: Digests,
        places: Int64s,
    ) -> None:
        found = np.flatnonzero(mask)
        self.result.counts[kind] += len(found)
        found = found[: self._room]
        if not len(found):
            return
        named = rows.select(list(self._shape.schema.key)).take(pa.array(found))
        self.result.keys.append((kind, named))
        for row in found.tolist():
            place = int(places[row])
            is_known = kind is not Kind.EXTRA
            ours = int(self._state.rows[place]) if is_known else 0
            self.result.suspects[int(keys[row])] = ours, int(digests[row])
            if is_known:
                self._remember(place, self.result.newest)

    def _remember(self, place: int, where: dict[TopicPartition, set[int]]) -> None:
        partition = self._state.partitions[self._state.origins[place]]
        where.setdefault(partition, set()).add(int(self._state.offsets[place]))


def still_differing(before: Mapping[int, tuple[int, int]], now: Compared) -> bool:
    """Whether a key that differed in the same way a while ago still does: then it was not on its
    way."""
    return any(before.get(key) == found for key, found in now.suspects.items())


def _firsts(places: Int64s) -> Any:
    """Which of them come for the first time."""
    found = np.zeros(len(places), np.bool_)
    found[np.unique(places, return_index=True)[1]] = True
    return found
