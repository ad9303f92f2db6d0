"""The log of the cluster's metadata: applies committed records, and appends the controller's
decisions."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from typing import Protocol, TypeVar

from headwater.core_log.foundation.errors import CorruptLog, OlderBrokers, StorageFailed
from headwater.core_log.model.log import StoredBatch
from headwater.core_log.replication.decisions import Decision
from headwater.core_log.replication.metadata import MetadataChanges, MetadataImage
from headwater.core_log.replication.metadata_records import (
    MetadataRecord,
    decode_record,
    encode_record,
)
from headwater.core_log.replication.snapshots import MetadataSnapshot, MetadataSnapshots
from headwater.core_log.replication.voters import Voter
from headwater.core_log.storage.log_config import UNLIMITED, LogConfig

METADATA_LOG_CONFIG = LogConfig(
    segment_bytes=4 << 20, retention_ms=UNLIMITED, retention_bytes=UNLIMITED
)
"""Never compacted by key and never expired: snapshots replace its older part."""
SNAPSHOT_AFTER_RECORDS = 5_000
Answer = TypeVar("Answer")


class MetadataPartition(Protocol):
    """`__cluster_metadata-0` on this broker. Its quorum decides what is committed there."""

    @property
    def end_offset(self) -> int: ...
    @property
    def high_watermark(self) -> int: ...
    def append(self, records: Sequence[tuple[bytes | None, bytes | None]]) -> int:
        """Writes one batch; returns the end offset after it. Raises `NotController` unless this
        broker leads the quorum."""
        ...

    async def durable(self, end_offset: int) -> None:
        """Returns once the present leader, this broker, has committed everything below; raises
        `NotController` if it has lost the lead, or never had it."""
        ...

    def read_from(self, offset: int) -> Iterator[StoredBatch]: ...
    def voters_at(self, end_offset: int) -> tuple[Voter, ...]:
        """Returns the voters of the log below an offset; none if it has no record of them."""
        ...

    def shorten(self, snapshot: MetadataSnapshot) -> None:
        """Allows the log to begin where a written snapshot ends, and older segments to be
        deleted."""
        ...


class MetadataLog:
    """Applies what is committed, on every broker. On the active controller it makes one decision at
    a time: each sees all earlier ones, and is answered once committed and applied."""

    def __init__(
        self,
        log: MetadataPartition,
        snapshots: MetadataSnapshots,
        listener: Callable[[MetadataChanges], Coroutine[None, None, None]],
    ) -> None:
        """`listener` is called for every change when the image has it, from `listen` on. The next
        change waits for the work that it returns."""
        self.image = MetadataImage()
        self._log, self._snapshots, self._listener = log, snapshots, listener
        self._is_heard = False
        self._turn, self._application = asyncio.Lock(), asyncio.Lock()
        self._applying: asyncio.Future[None] | None = None
        self._applied = asyncio.Condition()
        self._epoch = -1  # of the newest applied record
        self._snapshot_offset = 0

    def load_snapshot(self) -> None:
        """Begins the image with the newest snapshot; raises `CorruptLog` if the log ends before
        it."""
        snapshot = self._snapshots.newest()
        if snapshot is not None:
            if snapshot.end_offset > self._log.end_offset:
                raise _missing_records(self._log.end_offset, self._log, snapshot.end_offset)
            self.image.apply(snapshot.records, snapshot.end_offset)
            self._epoch, self._snapshot_offset = snapshot.epoch, snapshot.end_offset

    async def listen(self, opening: Callable[[], Awaitable[None]]) -> None:
        """Opens what belongs to the present image; the listener hears of every later change."""
        async with self._application:
            self._is_heard = True
            await opening()

    async def catch_up(self) -> None:
        """Applies everything committed."""
        async with self._application:
            await self.finish_applying()
            if self.image.end_offset >= self._log.high_watermark:
                return
            for records, end_offset in self._committed():
                await self._apply(records, end_offset)
        async with self._applied:
            self._applied.notify_all()

    def _committed(self) -> Iterator[tuple[list[MetadataRecord], int]]:
        """Yields committed batches that are not applied yet; raises `CorruptLog` if some are
        missing."""
        expected, below = self.image.end_offset, self._log.high_watermark
        for batch in self._log.read_from(expected):
            header = batch.header
            if header.base_offset > expected or header.next_offset > below:
                break
            if header.next_offset <= expected:
                continue
            read = () if header.is_control else batch.records
            self._epoch = header.leader_epoch
            yield (
                [decode_record(each.value or b"") for each in read if each.offset >= expected],
                header.next_offset,
            )
            expected = header.next_offset
        if expected < below:
            raise _missing_records(expected, self._log, self._snapshot_offset)

    async def wait_applied(self, end_offset: int) -> None:
        """Returns once everything below `end_offset` is applied here."""
        async with self._applied:
            await self._applied.wait_for(lambda: self.image.end_offset >= end_offset)

    async def take_snapshot(self, snapshot: MetadataSnapshot, install: Callable[[], None]) -> None:
        """Goes on from a snapshot of the leader, whose log begins later than ours ends. `install`
        puts it in the place of our log."""
        async with self._application:
            await self.finish_applying()
            if snapshot.end_offset <= self.image.end_offset:
                return
            install()
            self._epoch, self._snapshot_offset = snapshot.epoch, snapshot.end_offset
            changes = self.image.replace(snapshot.records, snapshot.end_offset)
            await self._tell(changes)
        async with self._applied:
            self._applied.notify_all()

    async def go_on_with(self, log: MetadataPartition) -> None:
        """Called when the log was opened again after a disk failure: appended records that are in
        it and are committed are decided, and all others are not."""
        async with self._application:
            self._log = log

    async def change(
        self,
        decide: Callable[[], Decision[Answer]],
        *,
        validate_only: bool = False,
        make_room: Callable[[], bool] | None = None,
    ) -> Answer:
        """Lets the controller decide on the present image; returns its answer once the records are
        committed and applied. If the disk has no space for them, `make_room` may free some. Raises
        `NotController` on any other broker, and `OlderBrokers` where one cannot read them."""
        async with self._turn:
            await self.settle()
            decision = decide()
            if not self.image.may_have(decision.records):
                raise OlderBrokers(
                    "brokers of an older version do not know this: upgrade all brokers of the"
                    " cluster first"
                )
            if decision.records and not validate_only:
                self._append([(None, encode_record(each)) for each in decision.records], make_room)
                await self.settle()
            return decision.answer

    def _append(
        self, records: list[tuple[None, bytes]], make_room: Callable[[], bool] | None
    ) -> None:
        try:
            self._log.append(records)
        except StorageFailed:
            if make_room is None or not make_room():
                raise
            self._log.append(records)

    async def settle(self) -> None:
        """Returns once everything in our log is committed and applied, including the decision of a
        cancelled caller: it is in the log all the same."""
        await self.finish_applying()
        while True:
            await self._log.durable(self._log.end_offset)
            await self.catch_up()
            if self.image.end_offset >= self._log.end_offset:
                return

    async def _apply(self, records: list[MetadataRecord], end_offset: int) -> None:
        await self._tell(self.image.apply(records, end_offset))

    async def _tell(self, changes: MetadataChanges) -> None:
        if self._is_heard:
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
        async with self._application:
            end_offset = self.image.end_offset
            snapshot = MetadataSnapshot(
                end_offset, self._epoch, list(self.image.records()), self._log.voters_at(end_offset)
            )
            await asyncio.to_thread(self._snapshots.write, snapshot, now_ms=now_ms)
            self._snapshot_offset = snapshot.end_offset
            self._log.shorten(snapshot)
        return True


def _missing_records(readable_to: int, log: MetadataPartition, snapshot_offset: int) -> CorruptLog:
    return CorruptLog(
        "records are missing from the metadata log",
        readable_to=readable_to,
        end_offset=log.end_offset,
        snapshot=snapshot_offset,
    )
