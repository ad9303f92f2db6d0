"""The transactional ids of this broker: storage, recovery, timeouts, and requests of the
handlers."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple

from headwater.core_log.foundation.clock import Clock
from headwater.core_log.foundation.errors import HeadwaterError, LogUnavailable, StorageFailed
from headwater.core_log.groups.transaction_shards import OpenByPartition, TransactionShards
from headwater.core_log.groups.transactional_id import (
    StateStore,
    TransactionalId,
    TransactionPartitions,
)
from headwater.core_log.groups.transactions import (
    NO_EPOCH,
    NO_PRODUCER_ID,
    VERSION_1,
    VERSION_2,
    ProducerIdentity,
    StoredTransaction,
    TransactionState,
)
from headwater.core_log.model.log import CoordinatorLog, TopicPartition
from headwater.core_log.protocol.error_codes import ErrorCode

NO_PRODUCER = ProducerIdentity(NO_PRODUCER_ID, NO_EPOCH)
MARKERS_WAIT_S = 0.1
"""How long an answer waits for markers on other brokers, so that the client's next transaction is
not refused meanwhile."""


@dataclass(frozen=True, slots=True)
class TransactionLimits:
    """Limits of transactions, with Kafka's defaults if Kafka has them."""

    timeout_ms_max: int = 900_000
    """Longest transaction timeout that a producer may ask for."""
    unused_ms_max: int = 7 * 24 * 3_600_000
    """How long an unused id is kept."""
    save_after_ms: int = 1_000
    """Idle time after which the last change of an id is written to the log."""
    retry_ms: int = 100
    """Interval of retries after a disk delayed a decision."""


class ProducerAnswer(NamedTuple):
    error: ErrorCode
    producer: ProducerIdentity = NO_PRODUCER


class TransactionCoordinator:
    """Coordinates transactions. A log with short cuts (`TransactionPartitions`): at a start `load`
    each partition led here, `recover` once, then serve; at a clean stop `drain`, before the mark of
    the clean stop is written. Without them: `begin_load`, `load_in_steps` and `take_over` whenever
    this broker is elected, `unload` when another one is."""

    def __init__(
        self,
        *,
        partition_count: Callable[[], int],
        open_state_log: Callable[[int], CoordinatorLog],
        partitions: TransactionPartitions,
        allocate_producer_ids: Callable[[], Awaitable[range]],
        clock: Clock,
        limits: TransactionLimits | None = None,
    ) -> None:
        self._shards = TransactionShards(partition_count, open_state_log, partitions)
        self._partitions = partitions
        self._producer_ids = ProducerIds(allocate_producer_ids)
        self._clock = clock
        self._limits = limits or TransactionLimits()
        self._works = dict[asyncio.Task[None], None]()

    def load(self, index: int, *, leader_epoch: int = 0) -> None:
        """Reads a partition of the log; its ids are served once they are recovered."""
        for _ in self.load_in_steps(index, leader_epoch=leader_epoch):
            pass

    def begin_load(self, index: int) -> None:
        """Called when this broker is elected: requests are refused until the partition is read."""
        self._shards.begin_load(index)

    def load_in_steps(self, index: int, *, leader_epoch: int) -> Iterator[None]:
        """Does what `load` does step by step, so that others may work in between."""
        yield from self._shards.load_in_steps(index, leader_epoch=leader_epoch)

    def take_over(self, index: int) -> None:
        """Serves the ids of a partition that another broker coordinated before."""
        self._shards.take_over(index)

    @property
    def is_loading(self) -> bool:
        """Whether some of the ids of this broker are not read yet."""
        return self._shards.is_loading

    def go_on_with(self, index: int) -> None:
        """Called when a partition of the log was opened again without loss: its state stays
        valid."""
        self._shards.go_on_with(index)

    def unload(self, index: int) -> None:
        """Forgets these ids, which another broker coordinates now."""
        self._shards.unload(index)

    def expect(self, index: int) -> None:
        """Names a partition of the log that should be here and cannot be read yet."""
        self._shards.expect(index)

    async def recover(
        self, open_transactions: OpenByPartition, *, was_clean: bool
    ) -> frozenset[TopicPartition]:
        """Brings the loaded ids in line with the data partitions; all of them must be named. Ids
        that need a write to an unwritable one wait for another call. Returns those partitions."""
        return await self._shards.recover(
            open_transactions,
            was_clean=was_clean,
            fresh_id_for=self._fresh_if_needed,
            now_ms=self._clock.now_ms(),
        )

    @property
    def is_behind(self) -> bool:
        """Whether ids wait for another `recover`."""
        return self._shards.is_behind

    async def on_partition_reopened(
        self,
        partition: TopicPartition,
        open_here: Collection[tuple[int, int]],
        *,
        is_whole: bool,
    ) -> None:
        """Called when a data partition was opened again; without `is_whole` an earlier write may be
        missing.

        Open transactions in it can then only be aborted, by the client or by a timeout. Missing
        markers are written here: before this returns, the partition takes no appends.
        """
        await self._shards.restore_partition(partition, open_here, is_whole=is_whole)

    def check(self, transactional_id: str) -> ErrorCode:
        """Checks whether this broker coordinates the id and is ready to."""
        return self._shards.check(transactional_id)

    def find(self, transactional_id: str) -> TransactionalId | None:
        """Returns the id that `check` lets through, if it is known."""
        return self._shards.find(transactional_id)

    def must_abort(self, transactional_id: str) -> bool:
        """Whether the client can only abort, because a crash or a disk failure lost some of its
        records."""
        found = self._shards.find(transactional_id)
        return found is not None and found.machine.must_abort

    def list_served(self) -> Iterator[TransactionalId]:
        return self._shards.list_served()

    async def init_producer_id(
        self,
        transactional_id: str | None,
        *,
        timeout_ms: int,
        expected: ProducerIdentity | None = None,
    ) -> ProducerAnswer:
        """Returns a producer id and epoch; without a transactional id a new producer id for
        idempotence only."""
        if transactional_id is None:
            return ProducerAnswer(
                ErrorCode.NONE, ProducerIdentity(await self._producer_ids.next(), 0)
            )
        if not transactional_id:
            return ProducerAnswer(ErrorCode.INVALID_REQUEST)
        if not 0 < timeout_ms <= self._limits.timeout_ms_max:
            return ProducerAnswer(ErrorCode.INVALID_TRANSACTION_TIMEOUT)
        error = self.check(transactional_id)
        if error is not ErrorCode.NONE:
            return ProducerAnswer(error)
        found = self._shards.find(transactional_id)
        if found is None:
            producer_id = await self._producer_ids.next()
            error = self.check(transactional_id)  # the id may have moved meanwhile
            if error is not ErrorCode.NONE:
                return ProducerAnswer(error)
            found = self._shards.create(transactional_id, producer_id, timeout_ms)
        error = await self._init(found, timeout_ms, expected)
        if error is ErrorCode.CONCURRENT_TRANSACTIONS and await self._is_marked_soon(found):
            error = await self._init(found, timeout_ms, expected)
        is_done = error is ErrorCode.NONE
        return ProducerAnswer(error, found.current.identity if is_done else NO_PRODUCER)

    async def _init(
        self, each: TransactionalId, timeout_ms: int, expected: ProducerIdentity | None
    ) -> ErrorCode:
        error = each.machine.check_init(expected)
        if error is not ErrorCode.NONE:
            return await _unless_failing(each, each.confirm(error))
        work = each.init(
            expected=expected,
            timeout_ms=timeout_ms,
            fresh_producer_id=await self._fresh_if_needed(each.current),
            now_ms=self._clock.now_ms(),
        )
        return await _unless_failing(each, work)

    async def add_partitions(
        self,
        transactional_id: str,
        producer: ProducerIdentity,
        partitions: Collection[TopicPartition],
        *,
        version: int = VERSION_1,
    ) -> ErrorCode:
        """Adds partitions that a client announces, or writes to without announcing (version 2)."""
        found = self._look_up(transactional_id)
        if isinstance(found, ErrorCode):
            return await self._confirm(transactional_id, found)
        now_ms = self._clock.now_ms()
        work = found.add(producer, partitions, version=version, now_ms=now_ms)
        return await _unless_failing(found, work)

    async def verify_or_add(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Collection[TopicPartition],
        *,
        may_add: bool,
    ) -> dict[TopicPartition, ErrorCode]:
        """Returns whether a batch may start the producer's transaction in these partitions.

        The caller appends before it awaits anything else: later, the transaction may have ended.
        """
        at_once = self.verify_or_add_at_once(
            transactional_id, producer_id, producer_epoch, partitions, may_add=may_add
        )
        if at_once is not None:
            return at_once
        producer = ProducerIdentity(producer_id, producer_epoch)
        if not may_add:
            verdicts = self._verify(transactional_id, producer, partitions)
            error = await self._confirm(transactional_id, ErrorCode.NONE)
            return verdicts if error is ErrorCode.NONE else dict.fromkeys(partitions, error)
        error = await self.add_partitions(transactional_id, producer, partitions, version=VERSION_2)
        return dict.fromkeys(partitions, _as_told(error))

    def _verify(
        self,
        transactional_id: str,
        producer: ProducerIdentity,
        partitions: Collection[TopicPartition],
    ) -> dict[TopicPartition, ErrorCode]:
        known = self._look_up(transactional_id)
        if isinstance(known, ErrorCode):
            return dict.fromkeys(partitions, known)
        found = known.machine.verify(producer, partitions)
        return {at: _as_told(error) for at, error in found.items()}

    async def _confirm(self, transactional_id: str, error: ErrorCode) -> ErrorCode:
        """Returns an answer for which nothing is written, see `TransactionalId.confirm`."""
        if error.is_retriable or self._partitions.has_short_cuts:
            return error
        return await self._shards.confirm(transactional_id) or error

    def verify_or_add_at_once(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Collection[TopicPartition],
        *,
        may_add: bool,
    ) -> dict[TopicPartition, ErrorCode] | None:
        """Returns the same if nothing must be stored or confirmed first; None otherwise."""
        if not self._partitions.has_short_cuts:
            return None
        producer = ProducerIdentity(producer_id, producer_epoch)
        known = self._look_up(transactional_id)
        if isinstance(known, ErrorCode) or not may_add:
            return self._verify(transactional_id, producer, partitions)
        now_ms = self._clock.now_ms()
        error = known.add_at_once(producer, partitions, version=VERSION_2, now_ms=now_ms)
        return None if error is None else dict.fromkeys(partitions, _as_told(error))

    async def end(
        self, transactional_id: str, producer: ProducerIdentity, *, commit: bool, version: int
    ) -> ProducerAnswer:
        """Answers when the decision is durable, with the producer's next id and epoch."""
        found = self._look_up(transactional_id)
        if isinstance(found, ErrorCode):
            return ProducerAnswer(await self._confirm(transactional_id, found))
        fresh_id = await self._fresh_if_needed(found.current)
        now_ms = self._clock.now_ms()
        verdict = found.machine.end(
            producer, commit=commit, version=version, fresh_producer_id=fresh_id, now_ms=now_ms
        )
        if isinstance(verdict, ErrorCode):
            error = await _unless_failing(found, found.confirm(verdict))
        else:
            work = found.end(
                producer, commit=commit, version=version, fresh_producer_id=fresh_id, now_ms=now_ms
            )
            error = await _unless_failing(found, work)
        is_done = error is ErrorCode.NONE
        if is_done:
            await self._is_marked_soon(found)
        return ProducerAnswer(error, found.identity_after if is_done else NO_PRODUCER)

    async def _is_marked_soon(self, each: TransactionalId) -> bool:
        """Begins to write the markers of a decision, unless that is always done with it; returns
        whether all were written within a short time. The next ticks go on with the others."""
        if self._partitions.has_short_cuts or not each.current.state.is_prepared:
            return False
        if not each.lock.locked():
            work = self._start(each, self._clock.now_ms())
            await asyncio.wait([work], timeout=MARKERS_WAIT_S)
        return not each.current.state.is_prepared

    async def tick(self, now_ms: int) -> None:
        """Finishes delayed decisions, aborts expired transactions, and stores idle changes. Returns
        at once if other brokers may have to be waited for."""
        for each in self._shards.list_served():
            deadline_ms = self._deadline_of(each, now_ms)
            if deadline_ms is None or deadline_ms > now_ms:
                continue
            if self._partitions.has_short_cuts:
                await self._attend(each, now_ms)
            else:
                self._start(each, now_ms)
        self._forget_unused(now_ms)

    def _start(self, each: TransactionalId, now_ms: int) -> asyncio.Task[None]:
        work = asyncio.ensure_future(self._attend(each, now_ms))
        self._works[work] = None
        work.add_done_callback(self._works.pop)
        return work

    def next_deadline_ms(self) -> int | None:
        now_ms = self._clock.now_ms()
        deadlines = (self._deadline_of(each, now_ms) for each in self._shards.list_served())
        return min((deadline for deadline in deadlines if deadline is not None), default=None)

    async def drain(self) -> None:
        """Stores everything for a clean start; no request may follow. Raises if only recovery after
        an unclean stop can handle the state: it aborts transactions with lost records."""
        ends: dict[StateStore, int] = {}
        for each in self._shards.list_served():
            await each.go_on()
            ends[each.home] = max(ends.get(each.home, 0), await each.save())
        for home, end_offset in ends.items():
            await home.log.durable(end_offset)
        doomed = [each.name for each in self._shards.list_served() if each.machine.is_doomed]
        if doomed:
            raise StorageFailed("records of open transactions may be lost", ids=doomed)

    async def end_short_cuts(self) -> None:
        """Called when there are no short cuts any more: stores what a crash could have taken, or
        raises if that is not possible yet."""
        if self._shards.is_behind:
            raise LogUnavailable("transactions are not recovered yet")
        await self.drain()

    async def close(self) -> None:
        """Ends the work that ticks have begun."""
        for work in self._works:
            work.cancel()
        if self._works:
            await asyncio.wait(self._works)

    async def _attend(self, each: TransactionalId, now_ms: int) -> None:
        with suppress(HeadwaterError):  # whose disk failed has said so; the next tick tries again
            if each.is_unfinished:
                await each.go_on()
            elif each.machine.is_overdue(now_ms):
                await self._abort_if_due(each, now_ms)
            else:
                await each.save()

    async def _abort_if_due(self, each: TransactionalId, now_ms: int) -> None:
        fresh_id = await self._fresh_if_needed(each.current)
        await each.abort_if_due(fresh_producer_id=fresh_id, now_ms=now_ms)

    def _deadline_of(self, each: TransactionalId, now_ms: int) -> int | None:
        """Returns the deadline; None while the id is being changed, or nothing is left to do."""
        current = each.current
        if each.lock.locked():
            return None
        # a later time is of a former coordinator, or from before the clock was set back
        updated_ms = current.updated_ms if current.updated_ms <= now_ms else 0
        if each.is_unfinished:
            return updated_ms + self._limits.retry_ms
        deadlines = []
        if current.state is TransactionState.ONGOING:
            deadlines.append(current.started_ms + current.timeout_ms)
        if not each.is_saved and current.producer_epoch != NO_EPOCH:
            deadlines.append(updated_ms + self._limits.save_after_ms)
        return min(deadlines, default=None)

    def _forget_unused(self, now_ms: int) -> None:
        for each in self._shards.list_served():
            current, is_quiet = each.current, each.is_saved and not each.lock.locked()
            is_over = current.state.is_complete or current.state is TransactionState.EMPTY
            is_old = now_ms - current.updated_ms >= self._limits.unused_ms_max
            if is_quiet and is_over and is_old and not each.unsettled:
                with suppress(HeadwaterError):  # the next tick tries again
                    self._shards.forget(each)

    def _look_up(self, transactional_id: str) -> TransactionalId | ErrorCode:
        if not transactional_id:
            return ErrorCode.INVALID_REQUEST
        error = self.check(transactional_id)
        if error is not ErrorCode.NONE:
            return error
        return self._shards.find(transactional_id) or ErrorCode.INVALID_PRODUCER_ID_MAPPING

    async def _fresh_if_needed(self, current: StoredTransaction) -> int:
        return await self._producer_ids.next() if current.needs_fresh_id else NO_PRODUCER_ID


def _as_told(error: ErrorCode) -> ErrorCode:
    """Translates the error of a fenced producer to the one of its partition."""
    return ErrorCode.INVALID_PRODUCER_EPOCH if error is ErrorCode.PRODUCER_FENCED else error


async def _unless_failing(each: TransactionalId, work: Awaitable[ErrorCode]) -> ErrorCode:
    try:
        return await work
    except HeadwaterError:
        moved, broken = ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE
        return moved if each.is_replaced else broken


class ProducerIds:
    """Gives out producer ids. The unused rest of a block is lost at a stop; there are enough
    ids."""

    def __init__(self, allocate: Callable[[], Awaitable[range]]) -> None:
        self._allocate = allocate
        self._left: deque[int] = deque()

    async def next(self) -> int:
        while not self._left:
            self._left.extend(await self._allocate())
        return self._left.popleft()
