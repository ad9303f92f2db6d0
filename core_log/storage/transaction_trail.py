"""Follows transactions while a partition is read from its start: what of them may be discarded."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from headwater.core_log.foundation.errors import DecodeError
from headwater.core_log.records.batch_header import CONTROL, TRANSACTIONAL
from headwater.core_log.records.record_codec import decode_varint
from headwater.core_log.storage.aborted import AbortedTransaction
from headwater.core_log.storage.segment_chunks import SegmentChunk

_ABORT, _COMMIT = 0, 1


@dataclass(slots=True)
class _Aborted:
    transaction: AbortedTransaction
    has_batches: bool = False
    """Some batch of it was met: it is discarded now, so its marker may go next time."""


class TransactionTrail:
    """Batches must come in the order of their offsets, none left out."""

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        self._coming = sorted(aborted, key=lambda each: each.first_offset, reverse=True)
        self._aborted: dict[int, _Aborted] = {}
        self._committed: set[int] = set()
        self.still_needed: list[AbortedTransaction] = []
        """Aborted transactions whose batches were met before their marker."""

    def discardable(self, chunk: SegmentChunk) -> npt.NDArray[np.bool_]:
        """Rows of aborted transactions, and markers of which no batch is left."""
        discard = np.zeros(len(chunk.heads), dtype=np.bool_)
        attributes = chunk.column("attributes")
        rows = np.flatnonzero(attributes & (TRANSACTIONAL | CONTROL))
        columns = (attributes, chunk.column("producer_id"), chunk.last_offsets)
        places = (column[rows].tolist() for column in columns)
        for row, bits, producer_id, last_offset in zip(rows.tolist(), *places, strict=True):
            self._begin(last_offset)
            if bits & CONTROL:
                discard[row] = self._end(producer_id, _control_type(chunk, row))
            else:
                discard[row] = self._is_aborted(producer_id)
        return discard

    def _begin(self, last_offset: int) -> None:
        while self._coming and self._coming[-1].first_offset <= last_offset:
            transaction = self._coming.pop()
            self._aborted.setdefault(transaction.producer_id, _Aborted(transaction))

    def _is_aborted(self, producer_id: int) -> bool:
        aborted = self._aborted.get(producer_id)
        if aborted is None:
            self._committed.add(producer_id)
            return False
        aborted.has_batches = True
        return True

    def _end(self, producer_id: int, control_type: int | None) -> bool:
        if control_type is None:
            return True  # it was emptied before
        if control_type == _ABORT:
            aborted = self._aborted.pop(producer_id, None)
            if aborted is None or not aborted.has_batches:
                return True
            self.still_needed.append(aborted.transaction)
            return False
        if control_type == _COMMIT:
            had_batches = producer_id in self._committed
            self._committed.discard(producer_id)
            return not had_batches
        return False


def _control_type(chunk: SegmentChunk, row: int) -> int | None:
    """The type of the batch's only record, from its key: two bytes of version, two of type."""
    if not chunk.heads["record_count"][row]:
        return None
    try:
        section = bytes(chunk.records(row))
        _, position = decode_varint(section, 0)
        _, position = decode_varint(section, position + 1)
        _, position = decode_varint(section, position)
        length, position = decode_varint(section, position)
    except DecodeError as error:
        raise chunk.damage(row, str(error)) from error
    if length < 4 or position + 4 > len(section):
        raise chunk.damage(row, "control record has no type")
    return int.from_bytes(section[position + 2 : position + 4])
