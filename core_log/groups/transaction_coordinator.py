"""The transactional ids of this broker: found, recovered, timed out, and asked by the handlers."""

from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple

from core_log.clock import Clock
from core_log.errors import HeadwaterError, LogUnavailable, StorageFailed
from core_log.groups.placement import partition_of
from core_log.groups.transaction_log import decode_key, decode_value, encode_key
from core_log.groups.transaction_recovery import (
    MarkerBatch,
    OpenTransaction,
    Recovery,
    recover_transaction,
)
from core_log.groups.transactional_id import StateHome, TransactionalId, TransactionPartitions
from core_log.groups.transactions import (
    NO_EPOCH,
    NO_PRODUCER_ID,
    VERSION_1,
    VERSION_2,
    ProducerIdentity,
    StoredTransaction,
    TransactionState,
)
from core_log.log import TopicPartition
from core_log.protocol.error_codes import ErrorCode
from core_log.state_log import StateLog

NOBODY = ProducerIdentity(NO_PRODUCER_ID, NO_EPOCH)


@dataclass(frozen=True, slots=True)
class TransactionLimits:
    """By Kafka's defaults, where Kafka has them."""

    timeout_ms_max: int = 900_000
    """Longest transaction timeout a producer may ask for."""
    unused_ms_max: int = 7 * 24 * 3_600_000
    """How long an id that nobody uses is remembered."""
    save_after_ms: int = 1_000
    """After how much quiet the log is brought up to date with what happened last to an id."""
    retry_ms: int = 100
    """How often a decision that a disk held up is tried again."""


class ProducerAnswer(NamedTuple):
    error: ErrorCode
    producer: ProducerIdentity = NOBODY


@dataclass(slots=True)
class _Shard:
    """One partition of `__transaction_state` and the ids it keeps."""

    home: StateHome
    ids: dict[str, TransactionalId] = field(default_factory=dict)
    is_recovered: bool = False


class TransactionCoordinator:
    """Order of a start: `load` each partition led here, `recover` once, then serve; at the end of a
    clean run `drain`, before the mark of cleanliness is written.
    """

    def __init__(
        self,
        *,
        partition_count: int,
        open_state_log: Callable[[int], StateLog],
        partitions: TransactionPartitions,
        allocate_producer_ids: Callable[[], Awaitable[range]],
        clock: Clock,
        limits: TransactionLimits | None = None,
    ) -> None:
        self._partition_count = partition_count
        self._open_state_log = open_state_log
        self._partitions = partitions
        self._allocate = allocate_producer_ids
        self._clock = clock
        self._limits = limits or TransactionLimits()
        self._shards: dict[int, _Shard] = {}
        self._fresh_ids: list[int] = []

    def load(self, index: int, *, leader_epoch: int = 0) -> None:
        """Reads a partition of the log; its ids are served once they are recovered."""
        log, stored = self._open_state_log(index), dict[str, StoredTransaction]()
        for batch in log.read():
            if batch.header.is_control:
                continue
            for record in batch.records:
                if record.key is None:
                    continue
                name = decode_key(record.key)
                if record.value is None:
                    stored.pop(name, None)
                else:
                    stored[name] = decode_value(record.value)
        # Without ids, as in a topic just created, there is nothing to recover.
        home = StateHome(index, log, leader_epoch)
        shard = self._shards[index] = _Shard(home, is_recovered=not stored)
        for name, state in stored.items():
            shard.ids[name] = TransactionalId(
                name, shard.home, self._partitions, state, saved=state
            )

    def unload(self, index: int) -> None:
        """Another broker looks after these ids from now on."""
        self._shards.pop(index, None)

    async def recover(
        self,
        open_transactions: Mapping[TopicPartition, Iterable[tuple[int, int]]],
        *,
        was_clean: bool,
    ) -> None:
        """Brings data partitions and ids in line; `open_transactions` are (producer id, epoch)."""
        shards = [shard for shard in self._shards.values() if not shard.is_recovered]
        names = [each for shard in shards for each in shard.ids.values()]
        owners = {id_: each for each in names for id_ in _producer_ids(each.current)}
        served = [each for shard in self._shards.values() for each in shard.ids.values()]
        known = {id_ for each in served for id_ in _producer_ids(each.current)}
        open_of: defaultdict[TransactionalId, list[OpenTransaction]] = defaultdict(list)
        markers: list[tuple[MarkerBatch, int]] = []
        for partition, producers in open_transactions.items():
            for producer in map(ProducerIdentity._make, producers):
                if producer.producer_id in owners:
                    open_of[owners[producer.producer_id]].append(
                        OpenTransaction(partition, producer)
                    )
                elif producer.producer_id not in known:
                    stray = MarkerBatch(producer, False, frozenset({partition}))
                    markers.append((stray, 0))
        recoveries: list[tuple[TransactionalId, Recovery]] = []
        for each in names:
            recovery = await self._plan(each, open_of[each], was_clean=was_clean)
            markers += [(marker, each.home.leader_epoch) for marker in recovery.markers]
            recoveries.append((each, recovery))
        await self._write_out(markers)
        await self._store(recoveries)
        for shard in shards:
            shard.is_recovered = True

    def check(self, transactional_id: str) -> ErrorCode:
        """Whether this broker looks after the id, and is ready to."""
        shard = self._shards.get(partition_of(transactional_id, self._partition_count))
        if shard is None:
            return ErrorCode.NOT_COORDINATOR
        return ErrorCode.NONE if shard.is_recovered else ErrorCode.COORDINATOR_LOAD_IN_PROGRESS

    async def init_producer_id(
        self,
        transactional_id: str | None,
        *,
        timeout_ms: int,
        expected: ProducerIdentity | None = None,
    ) -> ProducerAnswer:
        """Without a transactional id: a producer id nobody has had, for idempotence alone."""
        if transactional_id is None:
            return ProducerAnswer(
                ErrorCode.NONE, ProducerIdentity(await self._fresh_producer_id(), 0)
            )
        if not transactional_id:
            return ProducerAnswer(ErrorCode.INVALID_REQUEST)
        if not 0 < timeout_ms <= self._limits.timeout_ms_max:
            return ProducerAnswer(ErrorCode.INVALID_TRANSACTION_TIMEOUT)
        error = self.check(transactional_id)
        if error is not ErrorCode.NONE:
            return ProducerAnswer(error)
        found = self._find(transactional_id)
        if found is None:
            found = self._create(transactional_id, await self._fresh_producer_id(), timeout_ms)
        error = found.machine.check_init(expected)
        if error is ErrorCode.NONE:
            work = found.init(
                expected=expected,
                timeout_ms=timeout_ms,
                fresh_producer_id=await self._fresh_if_needed(found),
                now_ms=self._clock.now_ms(),
            )
            error = await _unless_failing(work)
        is_done = error is ErrorCode.NONE
        return ProducerAnswer(error, found.current.identity if is_done else NOBODY)

    async def add_partitions(
        self,
        transactional_id: str,
        producer: ProducerIdentity,
        partitions: Collection[TopicPartition],
        *,
        version: int = VERSION_1,
    ) -> ErrorCode:
        """The partitions a client announces, and those it simply writes to (version 2)."""
        found = self._look_up(transactional_id)
        if isinstance(found, ErrorCode):
            return found
        now_ms = self._clock.now_ms()
        return await _unless_failing(
            found.add(producer, partitions, version=version, now_ms=now_ms)
        )

    async def verify_or_add(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Collection[TopicPartition],
        *,
        may_add: bool,
    ) -> dict[TopicPartition, ErrorCode]:
        """Whether a batch may open the producer's transaction in these partitions.

        The caller appends before it awaits anything else: later, the transaction may be over.
        Fencing is told as producers expect it of a partition.
        """
        producer = ProducerIdentity(producer_id, producer_epoch)
        if may_add:
            error = await self.add_partitions(
                transactional_id, producer, partitions, version=VERSION_2
            )
            verdicts = dict.fromkeys(partitions, error)
        else:
            found = self._look_up(transactional_id)
            if isinstance(found, ErrorCode):
                verdicts = dict.fromkeys(partitions, found)
            else:
                verdicts = found.machine.verify(producer, partitions)
        fenced, told = ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH
        return {at: told if error is fenced else error for at, error in verdicts.items()}

    async def end(
        self, transactional_id: str, producer: ProducerIdentity, *, commit: bool, version: int
    ) -> ProducerAnswer:
        """Answers when the decision is durable, with who the producer is from now on."""
        found = self._look_up(transactional_id)
        if isinstance(found, ErrorCode):
            return ProducerAnswer(found)
        fresh_id = await self._fresh_if_needed(found)
        now_ms = self._clock.now_ms()
        verdict = found.machine.end(
            producer, commit=commit, version=version, fresh_producer_id=fresh_id, now_ms=now_ms
        )
        if isinstance(verdict, ErrorCode):
            error = verdict
        else:
            work = found.end(
                producer, commit=commit, version=version, fresh_producer_id=fresh_id, now_ms=now_ms
            )
            error = await _unless_failing(work)
        is_done = error is ErrorCode.NONE
        return ProducerAnswer(error, found.identity_after if is_done else NOBODY)

    async def tick(self, now_ms: int) -> None:
        """Finishes what was held up, aborts what takes too long, records what is quiet."""
        for each in self._served():
            if (self._deadline_of(each) or now_ms + 1) > now_ms:
                continue
            try:
                await self._attend(each, now_ms)
            except HeadwaterError:
                # Whoever owns the failed disk has said so; the next tick tries again.
                continue
        self._forget_unused(now_ms)

    def next_deadline_ms(self) -> int | None:
        deadlines = (self._deadline_of(each) for each in self._served())
        return min((deadline for deadline in deadlines if deadline is not None), default=None)

    async def drain(self) -> None:
        """Records everything, so that a clean start finds it all; nothing may be asked any more."""
        ends: dict[StateHome, int] = {}
        for each in self._served():
            await each.go_on()
            ends[each.home] = max(ends.get(each.home, 0), await each.save())
        for home, end_offset in ends.items():
            await home.log.durable(end_offset)

    async def _attend(self, each: TransactionalId, now_ms: int) -> None:
        if each.is_unfinished:
            await each.go_on()
        elif each.machine.is_overdue(now_ms):
            await each.abort_overdue(now_ms)
        else:
            await each.save()

    def _deadline_of(self, each: TransactionalId) -> int | None:
        """None while somebody is at work on it, or nothing is left to do."""
        current = each.current
        if each.lock.locked():
            return None
        if each.is_unfinished:
            return current.updated_ms + self._limits.retry_ms
        deadlines = []
        if current.state is TransactionState.ONGOING:
            deadlines.append(current.started_ms + current.timeout_ms)
        if not each.is_saved and current.producer_epoch != NO_EPOCH:
            deadlines.append(current.updated_ms + self._limits.save_after_ms)
        return min(deadlines, default=None)

    def _forget_unused(self, now_ms: int) -> None:
        for shard in self._shards.values():
            for name, each in list(shard.ids.items()):
                current, is_quiet = each.current, each.is_saved and not each.lock.locked()
                is_over = not current.state.is_prepared and (
                    current.state is not TransactionState.ONGOING
                )
                is_old = now_ms - current.updated_ms >= self._limits.unused_ms_max
                if is_quiet and is_over and is_old and not each.unsettled:
                    with suppress(StorageFailed):
                        shard.home.log.append([(encode_key(name), None)])
                        del shard.ids[name]

    async def _plan(
        self, each: TransactionalId, open_here: list[OpenTransaction], *, was_clean: bool
    ) -> Recovery:
        return recover_transaction(
            each.current,
            open_here,
            was_clean=was_clean,
            fresh_producer_id=await self._fresh_if_needed(each),
            now_ms=self._clock.now_ms(),
        )

    async def _write_out(self, markers: Iterable[tuple[MarkerBatch, int]]) -> None:
        """Markers before the records that follow them: see `TransactionalId`."""
        marked: set[TopicPartition] = set()
        for marker, leader_epoch in markers:
            left = await self._partitions.write_markers(
                marker.producer.producer_id,
                marker.producer.epoch,
                commit=marker.commit,
                coordinator_epoch=leader_epoch,
                partitions=marker.partitions,
            )
            if left:
                raise LogUnavailable("transactions cannot be ended", partitions=sorted(left))
            marked |= marker.partitions
        if marked:
            await self._partitions.sync(marked)

    async def _store(self, recoveries: Iterable[tuple[TransactionalId, Recovery]]) -> None:
        ends: dict[StateHome, int] = {}
        for each, recovery in recoveries:
            ends[each.home] = max(ends.get(each.home, 0), each.restore(recovery))
        for home, end_offset in ends.items():
            await home.log.durable(end_offset)

    def _served(self) -> list[TransactionalId]:
        shards = (shard for shard in self._shards.values() if shard.is_recovered)
        return [each for shard in shards for each in shard.ids.values()]

    def _look_up(self, transactional_id: str) -> TransactionalId | ErrorCode:
        if not transactional_id:
            return ErrorCode.INVALID_REQUEST
        error = self.check(transactional_id)
        if error is not ErrorCode.NONE:
            return error
        return self._find(transactional_id) or ErrorCode.INVALID_PRODUCER_ID_MAPPING

    def _find(self, transactional_id: str) -> TransactionalId | None:
        index = partition_of(transactional_id, self._partition_count)
        return self._shards[index].ids.get(transactional_id)

    def _create(self, name: str, producer_id: int, timeout_ms: int) -> TransactionalId:
        shard = self._shards[partition_of(name, self._partition_count)]
        if name not in shard.ids:  # another request may have come first
            new = StoredTransaction(producer_id, NO_EPOCH, timeout_ms)
            shard.ids[name] = TransactionalId(name, shard.home, self._partitions, new, saved=None)
        return shard.ids[name]

    async def _fresh_if_needed(self, each: TransactionalId) -> int:
        needs_id = each.current.needs_fresh_id
        return await self._fresh_producer_id() if needs_id else NO_PRODUCER_ID

    async def _fresh_producer_id(self) -> int:
        if not self._fresh_ids:
            self._fresh_ids = list(reversed(await self._allocate()))
        return self._fresh_ids.pop()


def _producer_ids(stored: StoredTransaction) -> set[int]:
    return {stored.producer_id, stored.next_producer_id} - {NO_PRODUCER_ID}


async def _unless_failing(work: Awaitable[ErrorCode]) -> ErrorCode:
    try:
        return await work
    except HeadwaterError:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
