"""One transactional id with its clients, its log and the partitions of its transactions."""

from asyncio import Lock
from collections.abc import Collection
from typing import NamedTuple, Protocol

from headwater.core_log.foundation.errors import LogUnavailable, StorageFailed
from headwater.core_log.groups.transaction_log import TransactionRecovery, encode_key, encode_value
from headwater.core_log.groups.transactions import (
    NO_EPOCH,
    ProducerIdentity,
    StoredTransaction,
    TransactionMetadata,
    TransactionState,
)
from headwater.core_log.model.log import CoordinatorLog, TopicPartition
from headwater.core_log.protocol.error_codes import ErrorCode

NO_PARTITIONS: frozenset[TopicPartition] = frozenset()


class TransactionPartitions(Protocol):
    """The partitions of transactions, on whichever broker leads them."""

    @property
    def has_short_cuts(self) -> bool:
        """Whether the log never had a second broker. Then appends of transactions and markers are
        answered unsynced, and recovery makes up for what a crash takes. Otherwise both are
        committed before they are answered, and so is every record of an id."""
        ...

    async def sync(self, partitions: Collection[TopicPartition]) -> None:
        """Returns once everything written so far is durable; so is a deleted partition."""
        ...

    async def write_markers(
        self,
        producer_id: int,
        producer_epoch: int,
        *,
        commit: bool,
        coordinator_epoch: int,
        version: int,
        partitions: Collection[TopicPartition],
    ) -> Collection[TopicPartition]:
        """Ends the producer's transaction there, unsynced if there are short cuts; returns the
        partitions that cannot be written at the moment.

        A deleted partition needs no marker.
        """
        ...


class StateStore(NamedTuple):
    """The partition of `__transaction_state` that stores an id."""

    partition: int
    log: CoordinatorLog
    leader_epoch: int


class TransactionalId:
    """Makes each verdict of a `Transaction` durable, in an order that survives a crash at any
    point.

    A commit takes two syncs, however many partitions it has: their records, then the decision.
    Markers follow unsynced, since recovery writes them again from the decision. So the decision
    must stay the id's last record until they are durable: nothing is appended while `unsettled` is
    not empty. The next transaction of a client of version 2 is kept in memory until then (see
    `recover_transaction`).

    Without these short cuts (`TransactionPartitions.has_short_cuts`) each record of the id is
    committed before it is answered, and so is each marker. A coordinator that takes the id over
    writes the markers of a prepared transaction again, and leaves an open one to its client.
    """

    def __init__(
        self,
        name: str,
        home: StateStore,
        partitions: TransactionPartitions,
        current: StoredTransaction,
        *,
        saved: StoredTransaction | None,
    ) -> None:
        self.name, self.home, self._partitions = name, home, partitions
        self.machine = TransactionMetadata(current)
        self.lock = Lock()
        self.saved = saved
        """The last appended record, which may be older than the present state."""
        self.unsettled = NO_PARTITIONS
        """Partitions in which a marker of the last decision may not be durable yet."""
        self.unwritten = NO_PARTITIONS
        """Partitions in which a marker of the last decision is not written yet."""
        self.is_replaced = False
        """Its state was read again from the disk: tasks that still use this object must stop."""
        self._pending_end = 0

    @property
    def current(self) -> StoredTransaction:
        return self.machine.current

    @property
    def identity_after(self) -> ProducerIdentity:
        """The client's id and epoch from its next transaction on."""
        current = self.current
        return (current.complete(0) if current.state.is_prepared else current).identity

    @property
    def is_saved(self) -> bool:
        return self.saved == self.current

    @property
    def is_unfinished(self) -> bool:
        """Whether a decision is unfinished because a disk or a client failed."""
        is_deciding = self.machine.pending is not None or self.current.state.is_prepared
        return (is_deciding or bool(self.unwritten)) and not self.lock.locked()

    async def add(
        self,
        producer: ProducerIdentity,
        wanted: Collection[TopicPartition],
        *,
        version: int,
        now_ms: int,
    ) -> ErrorCode:
        """Adds partitions. Once this returns NONE, records of this transaction may be appended
        there."""
        at_once = self.add_at_once(producer, wanted, version=version, now_ms=now_ms)
        if at_once is not None:
            return at_once
        async with self.lock:
            self._check_current()
            verdict = self.machine.add(producer, wanted, version=version, now_ms=now_ms)
            if isinstance(verdict, ErrorCode):
                return await self.confirm(verdict)
            if not self._is_deferred(verdict):
                is_open = self.current.state is TransactionState.ONGOING
                was_recorded = is_open and self._last_state is TransactionState.ONGOING
                await self._settle()
                end_offset = self._append(verdict)
                if not was_recorded or not self._partitions.has_short_cuts:
                    # Nothing may depend on a start that a crash can remove, nor on a partition
                    # that the next coordinator does not know.
                    await self.home.log.durable(end_offset)
            self.machine.enter(verdict)
            return ErrorCode.NONE

    def add_at_once(
        self,
        producer: ProducerIdentity,
        wanted: Collection[TopicPartition],
        *,
        version: int,
        now_ms: int,
    ) -> ErrorCode | None:
        """Adds them if nothing must be stored first, which is the usual case; None otherwise."""
        verdict = self.machine.add(producer, wanted, version=version, now_ms=now_ms)
        if isinstance(verdict, ErrorCode):
            return verdict if self._partitions.has_short_cuts else None
        if self.lock.locked() or not self._is_deferred(verdict):
            return None
        self.machine.enter(verdict)
        return ErrorCode.NONE

    async def end(
        self,
        producer: ProducerIdentity,
        *,
        commit: bool,
        version: int,
        fresh_producer_id: int,
        now_ms: int,
    ) -> ErrorCode:
        async with self.lock:
            self._check_current()
            verdict = self.machine.end(
                producer,
                commit=commit,
                version=version,
                fresh_producer_id=fresh_producer_id,
                now_ms=now_ms,
            )
            if isinstance(verdict, ErrorCode):
                return await self.confirm(verdict)
            await self._decide(verdict, synced=self.current.partitions if commit else None)
            return ErrorCode.NONE

    async def init(
        self,
        *,
        expected: ProducerIdentity | None,
        timeout_ms: int,
        fresh_producer_id: int,
        now_ms: int,
    ) -> ErrorCode:
        """Starts a new run of the producer: aborts the open transaction of the former one."""
        async with self.lock:
            self._check_current()
            error = self.machine.check_init(expected)
            if error is not ErrorCode.NONE:
                return await self.confirm(error)
            if self.current.state is TransactionState.ONGOING:
                fenced = self.machine.fence(fresh_producer_id=fresh_producer_id, now_ms=now_ms)
                await self._decide(fenced)
                if self.current.state.is_prepared:
                    return ErrorCode.CONCURRENT_TRANSACTIONS
            verdict = self.machine.init(
                expected=expected,
                timeout_ms=timeout_ms,
                fresh_producer_id=fresh_producer_id,
                now_ms=now_ms,
            )
            if isinstance(verdict, ErrorCode):
                return await self.confirm(verdict)
            await self._decide(verdict)
            return ErrorCode.NONE

    async def confirm(self, verdict: ErrorCode) -> ErrorCode:
        """Returns an answer for which nothing is written, once it is sure that no other coordinator
        knows better. A client that is to ask again needs no such proof."""
        if not verdict.is_retriable and not self._partitions.has_short_cuts:
            await self.home.log.confirm_leadership()
            self._check_current()
        return verdict

    async def abort_if_due(self, *, fresh_producer_id: int, now_ms: int) -> None:
        async with self.lock:
            if self.machine.is_overdue(now_ms) and self.machine.pending is None:
                # No other producer took over, so the late producer may still ask for its next epoch
                # (KIP-588).
                fenced = self.machine.fence(fresh_producer_id=fresh_producer_id, now_ms=now_ms)
                await self._decide(fenced)

    async def go_on(self) -> None:
        """Continues unfinished work (`is_unfinished`)."""
        async with self.lock:
            await self._finish()
            await self._settle()

    def on_partition_back(
        self,
        partition: TopicPartition,
        open_here: Collection[ProducerIdentity],
        *,
        is_whole: bool,
    ) -> None:
        """Called when a partition was opened again and unsynced writes may be lost: the marker of
        the last decision, and a part of the open transaction, which can then not be committed."""
        decided = self.saved
        if decided is not None and any(decided.decides(partition, each) for each in open_here):
            self.unwritten |= {partition}
        is_open = self.current.state is TransactionState.ONGOING
        is_part = is_open and partition in self.current.partitions
        self.machine.is_doomed |= is_part and not is_whole

    def knows_of(self, partition: TopicPartition, producer: ProducerIdentity) -> bool:
        """Whether this id itself will end that producer's open transaction there."""
        current, decided = self.current, self.saved
        is_own = producer == current.identity and partition in current.partitions
        if is_own and current.state is TransactionState.ONGOING:
            return True
        return decided is not None and decided.decides(partition, producer)

    async def save(self) -> int:
        """Appends the present state if it is not stored yet; returns the log's end."""
        async with self.lock:
            await self._settle()
            is_known = self.current.producer_epoch != NO_EPOCH
            if is_known and not self.is_saved and not self.current.state.is_prepared:
                self._pending_end = self._append(self.current)
            return self._pending_end

    def take_over(self) -> None:
        """Called when the id was read by a new coordinator: the markers of a prepared transaction
        may be missing anywhere. They are written again, harmless where they are."""
        if self.current.state.is_prepared:
            self.unwritten = self.current.partitions

    def restore(self, recovery: TransactionRecovery) -> int:
        """Stores the result of recovery before any request is served; returns the log's end."""
        if recovery.state is None:
            return 0
        end_offset = self._append(recovery.state)
        self.machine.enter_recovered(recovery.state, recovery.earlier)
        return end_offset

    async def _decide(
        self, state: StoredTransaction, *, synced: frozenset[TopicPartition] | None = None
    ) -> None:
        self.machine.pending = state
        try:
            await self._settle(synced or NO_PARTITIONS)
            if self.machine.is_doomed and state.state.is_commit:
                raise StorageFailed("records of the transaction may be lost", id=self.name)
            self._pending_end = self._append(state)
        except BaseException:
            self.machine.pending = None  # nothing was decided
            raise
        if self._partitions.has_short_cuts:
            await self._finish()
        else:
            await self._store_decision()  # the markers may have to wait for other brokers

    async def _finish(self) -> None:
        """Finishes a decision from its record on; it can be continued wherever it stopped."""
        await self._store_decision()
        current = self.current
        if not current.state.is_prepared:
            return
        await self._write_markers(current)
        if not self.unwritten:
            if self._partitions.has_short_cuts:
                self.unsettled = current.partitions
            self.machine.enter(current.complete(current.updated_ms))
            self.machine.is_doomed = False

    async def _store_decision(self) -> None:
        if self.machine.pending is not None:
            await self.home.log.durable(self._pending_end)
            self.machine.enter(self.machine.pending)
            self.unwritten = self.current.partitions

    async def _write_markers(self, decided: StoredTransaction) -> None:
        """Writes the markers; partitions in which that is not possible at the moment stay in
        `unwritten`."""
        self._check_current()
        wanted, self.unwritten = self.unwritten, NO_PARTITIONS
        left: Collection[TopicPartition] = wanted
        try:
            if wanted:
                left = await self._partitions.write_markers(
                    decided.producer_id,
                    decided.producer_epoch,
                    commit=decided.state.is_commit,
                    coordinator_epoch=self.home.leader_epoch,
                    version=decided.client_version,
                    partitions=wanted,
                )
        finally:
            self.unwritten |= frozenset(left)

    async def _settle(self, written: frozenset[TopicPartition] = NO_PARTITIONS) -> None:
        """Makes the markers durable; then the next record may be appended."""
        while written or self.unsettled or self.unwritten:
            if self.unwritten and self.saved is not None:
                self.unsettled |= self.unwritten
                await self._write_markers(self.saved)
                if self.unwritten:
                    raise StorageFailed("markers cannot be written", count=len(self.unwritten))
            await self._partitions.sync(written | self.unsettled)
            written = self.unsettled = NO_PARTITIONS

    def _append(self, state: StoredTransaction) -> int:
        self._check_current()
        is_settled = not self.unsettled and not self.unwritten
        assert is_settled, "a decision stays the last record until its markers are durable"
        end_offset = self.home.log.append([(encode_key(self.name), encode_value(state))])
        self.saved = state
        return end_offset

    def _check_current(self) -> None:
        if self.is_replaced:
            raise LogUnavailable("the transactional id was read again from the disk", id=self.name)

    def _is_deferred(self, verdict: StoredTransaction) -> bool:
        saved = self.saved
        is_traceable = saved is not None and saved.state.is_prepared and saved.bumps_epoch
        return verdict.bumps_epoch and is_traceable and self._partitions.has_short_cuts

    @property
    def _last_state(self) -> TransactionState | None:
        return None if self.saved is None else self.saved.state
