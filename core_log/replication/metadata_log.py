"""The log of the cluster's metadata: appends decisions and applies committed records."""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Protocol, TypeVar

from headwater.core_log.foundation.errors import CorruptLog, StorageFailed
from headwater.core_log.model.state_log import StateLog
from headwater.core_log.replication.decisions import Decision
from headwater.core_log.replication.metadata import MetadataChanges, MetadataImage
from headwater.core_log.replication.metadata_records import (
    MetadataRecord,
    decode_record,
    encode_record,
)
from headwater.core_log.replication.snapshots import MetadataSnapshot, MetadataSnapshots
from headwater.core_log.storage.log_config import UNLIMITED, LogConfig

METADATA_LOG_CONFIG = LogConfig(
    segment_bytes=4 << 20, retention_ms=UNLIMITED, retention_bytes=UNLIMITED
)
"""Never compacted by key and never expired: snapshots replace its older part."""
SNAPSHOT_AFTER_RECORDS = 5_000
Answer = TypeVar("Answer")


class MetadataPartition(StateLog, Protocol):
    """`__cluster_metadata-0` as its leader sees it. Durable records are committed, by whatever rule
    its voters follow."""

    @property
    def end_offset(self) -> int: ...
    @property
    def leader_epoch(self) -> int: ...
    def forget_before(self, offset: int) -> None:
        """Allows the log to start at `offset` and older segments to be deleted."""
        ...


class MetadataLog:
    """Makes one decision at a time: each sees all earlier ones, and is answered once committed."""

    def __init__(
        self,
        log: MetadataPartition,
        snapshots: MetadataSnapshots,
        listener: Callable[[MetadataChanges], Coroutine[None, None, None]],
    ) -> None:
        """`listener` is called for every change when the image has it; not during `load`. The next
        decision waits for the work that it returns."""
        self.image = MetadataImage()
        self._log, self._snapshots, self._listener = log, snapshots, listener
        self._turn = asyncio.Lock()
        self._applying: asyncio.Future[None] | None = None
        self._appended: deque[tuple[int, list[MetadataRecord]]] = deque()
        self._epoch = -1  # of the newest applied record
        self._snapshot_offset = 0

    async def load(self) -> None:
        """Builds the image from the newest snapshot and the log after it."""
        snapshot = self._snapshots.newest()
        if snapshot is not None:
            self.image.apply(snapshot.records, snapshot.end_offset)
            self._epoch, self._snapshot_offset = snapshot.epoch, snapshot.end_offset
        records = self._replay()
        await self._log.durable(self._log.end_offset)
        self.image.apply(records, self._log.end_offset)

    def _replay(self) -> list[MetadataRecord]:
        """Yields the records after the snapshot; raises `CorruptLog` if some are missing."""
        expected, records = self._snapshot_offset, list[MetadataRecord]()
        for batch in self._log.read():
            if batch.header.base_offset > expected:
                break
            if batch.header.next_offset > expected and not batch.header.is_control:
                records += [
                    decode_record(each.value or b"")
                    for each in batch.records
                    if each.offset >= expected
                ]
            expected = max(expected, batch.header.next_offset)
            self._epoch = max(self._epoch, batch.header.leader_epoch)
        if expected != self._log.end_offset:
            raise CorruptLog(
                "records are missing from the metadata log",
                readable_to=expected,
                end_offset=self._log.end_offset,
                snapshot=self._snapshot_offset,
            )
        return records

    async def go_on_with(self, log: MetadataPartition) -> None:
        """Called when the log was opened again after a disk failure: appended records that are in
        it are decided, and all others are not."""
        async with self._turn:
            await log.durable(log.end_offset)
            self._log = log
            self._appended.clear()
            known = self.image.end_offset
            for batch in log.read():
                if batch.header.base_offset >= known:
                    is_control = batch.header.is_control
                    read = () if is_control else batch.records
                    records = [decode_record(each.value or b"") for each in read]
                    self._epoch = batch.header.leader_epoch
                    await self._apply(records, batch.header.next_offset)

    async def change(
        self,
        decide: Callable[[], Decision[Answer]],
        *,
        validate_only: bool = False,
        make_room: Callable[[], bool] | None = None,
    ) -> Answer:
        """Lets the controller decide on the present image; returns its answer once the records are
        committed and applied. If the disk has no space for them, `make_room` may free some."""
        async with self._turn:
            await self._settle()
            decision = decide()
            if decision.records and not validate_only:
                encoded = [(None, encode_record(each)) for each in decision.records]
                self._appended.append((self._append(encoded, make_room), decision.records))
                await self._settle()
            return decision.answer

    def _append(
        self, records: list[tuple[None, bytes]], make_room: Callable[[], bool] | None
    ) -> int:
        try:
            return self._log.append(records)
        except StorageFailed:
            if make_room is None or not make_room():
                raise
            return self._log.append(records)

    async def _settle(self) -> None:
        """Applies appended records once they are committed, including those of a cancelled caller:
        they are in the log all the same."""
        await self.finish_applying()
        while self._appended:
            end_offset, records = self._appended[0]
            await self._log.durable(end_offset)
            self._appended.popleft()
            self._epoch = self._log.leader_epoch
            await self._apply(records, end_offset)

    async def _apply(self, records: list[MetadataRecord], end_offset: int) -> None:
        changes = self.image.apply(records, end_offset)
        self._applying = asyncio.ensure_future(self._listener(changes))
        await self.finish_applying()

    async def finish_applying(self) -> None:
        """Returns once the listener is done with the last change, whose caller may be gone."""
        applying = self._applying
        if applying is None:
            return
        try:
            await asyncio.shield(applying)
        finally:
            if applying.done():
                self._applying = None

    async def snapshot_if_grown(self, *, now_ms: int) -> bool:
        """Writes a snapshot if the log is much larger than one would be, and allows the deletion of
        older segments. Returns True if it did."""
        grown = self.image.end_offset - self._snapshot_offset
        if grown < SNAPSHOT_AFTER_RECORDS or grown < 2 * self.image.record_count:
            return False
        async with self._turn:
            snapshot = MetadataSnapshot(
                self.image.end_offset, self._epoch, list(self.image.records())
            )
            await asyncio.to_thread(self._snapshots.write, snapshot, now_ms=now_ms)
            self._snapshot_offset = snapshot.end_offset
            self._log.forget_before(snapshot.end_offset)
        return True
