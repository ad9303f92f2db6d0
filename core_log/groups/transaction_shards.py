"""The transactional ids of this broker, and their recovery after a restart."""

from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from headwater.core_log.foundation.errors import HeadwaterError, LogUnavailable
from headwater.core_log.groups.group_coordinator import partition_of
from headwater.core_log.groups.transaction_log import (
    MarkerBatch,
    TransactionRecovery,
    UnmarkedTransaction,
    decode_key,
    decode_value,
    encode_key,
    recover_transaction,
)
from headwater.core_log.groups.transactional_id import (
    StateStore,
    TransactionalId,
    TransactionPartitions,
)
from headwater.core_log.groups.transactions import (
    NO_EPOCH,
    NO_PRODUCER_ID,
    VERSION_1,
    ProducerIdentity,
    StoredTransaction,
)
from headwater.core_log.model.log import CoordinatorLog, TopicPartition
from headwater.core_log.protocol.error_codes import ErrorCode

OpenByPartition = Mapping[TopicPartition, Iterable[tuple[int, int]]]
"""For every partition led here: producer id and epoch of transactions without a marker."""


@dataclass(slots=True)
class TransactionShard:
    """One partition of `__transaction_state` and its ids."""

    home: StateStore
    ids: dict[str, TransactionalId] = field(default_factory=dict)
    unrecovered: set[str] = field(default_factory=set)
    """Not in line with the data partitions yet; requests about them are refused."""


class TransactionShards:
    """The shards of this broker. An id is served once it is recovered."""

    def __init__(
        self,
        partition_count: Callable[[], int],
        open_state_log: Callable[[int], CoordinatorLog],
        partitions: TransactionPartitions,
    ) -> None:
        self._partition_count = partition_count
        self._open_state_log = open_state_log
        self._partitions = partitions
        self._shards: dict[int, TransactionShard] = {}
        self._missing: set[int] = set()
        self._loading: set[int] = set()

    def expect(self, index: int) -> None:
        """Names a partition that should be here and cannot be read: its ids are not known."""
        self._missing.add(index)

    def begin_load(self, index: int) -> None:
        self.unload(index)
        self._loading.add(index)

    def load_in_steps(self, index: int, *, leader_epoch: int) -> Iterator[None]:
        log, stored = self._open_state_log(index), dict[str, StoredTransaction]()
        for batch in log.read():
            for record in () if batch.header.is_control else batch.records:
                if record.key is None:
                    continue
                name = decode_key(record.key)
                if record.value is None:
                    stored.pop(name, None)
                else:
                    stored[name] = decode_value(record.value)
            yield
        self.unload(index)
        home = StateStore(index, log, leader_epoch)
        shard = self._shards[index] = TransactionShard(home, unrecovered=set(stored))
        for name, state in stored.items():
            shard.ids[name] = TransactionalId(name, home, self._partitions, state, saved=state)

    def take_over(self, index: int) -> None:
        """Serves the ids of a partition as they were read: another coordinator has committed all
        that it answered, so that nothing is aborted because the ids have moved."""
        shard = self._shards[index]
        for each in shard.ids.values():
            each.take_over()
        shard.unrecovered.clear()

    def go_on_with(self, index: int) -> None:
        """Called when its log was opened again without loss."""
        shard = self._shards[index]
        shard.home = shard.home._replace(log=self._open_state_log(index))
        for each in shard.ids.values():
            each.home = shard.home

    @property
    def is_behind(self) -> bool:
        return any(shard.unrecovered for shard in self._all())

    def unload(self, index: int) -> None:
        self._missing.discard(index)
        self._loading.discard(index)
        shard = self._shards.pop(index, None)
        for each in shard.ids.values() if shard else ():
            each.is_replaced = True

    @property
    def is_loading(self) -> bool:
        return bool(self._loading)

    def check(self, name: str) -> ErrorCode:
        index = partition_of(name, self._partition_count())
        shard = self._shards.get(index)
        if shard is None and index in self._loading:
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        if shard is None:
            is_ours = index in self._missing
            return ErrorCode.COORDINATOR_NOT_AVAILABLE if is_ours else ErrorCode.NOT_COORDINATOR
        is_recovered = name not in shard.unrecovered
        return ErrorCode.NONE if is_recovered else ErrorCode.COORDINATOR_LOAD_IN_PROGRESS

    async def confirm(self, name: str) -> ErrorCode:
        """Returns NONE once it is sure that no other broker had taken over this id before."""
        shard = self._shards.get(partition_of(name, self._partition_count()))
        try:
            if shard is not None:
                await shard.home.log.confirm_leadership()
        except HeadwaterError:
            return self.check(name) or ErrorCode.COORDINATOR_NOT_AVAILABLE
        return self.check(name)

    def find(self, name: str) -> TransactionalId | None:
        shard = self._shards.get(partition_of(name, self._partition_count()))
        return None if shard is None else shard.ids.get(name)

    def create(self, name: str, producer_id: int, timeout_ms: int) -> TransactionalId:
        shard = self._shard_of(name)
        if name not in shard.ids:  # another request may have come first
            new = StoredTransaction(producer_id, NO_EPOCH, timeout_ms)
            shard.ids[name] = TransactionalId(name, shard.home, self._partitions, new, saved=None)
        return shard.ids[name]

    def forget(self, each: TransactionalId) -> None:
        each.home.log.append([(encode_key(each.name), None)])
        del self._shard_of(each.name).ids[each.name]

    def list_served(self) -> Iterator[TransactionalId]:
        for shard in self._all():
            for name, each in list(shard.ids.items()):
                if name not in shard.unrecovered:
                    yield each

    async def recover(
        self,
        opened: OpenByPartition,
        *,
        was_clean: bool,
        fresh_id_for: Callable[[StoredTransaction], Awaitable[int]],
        now_ms: int,
    ) -> frozenset[TopicPartition]:
        """Writes markers, makes them durable, then stores the records that may follow: see
        `TransactionalId`.

        Returns the partitions in which a marker could not be written. The ids that wait for them
        are not served until a later call succeeds.
        """
        opened_by, strays = self._sort(opened)
        left = await self._write_out((marker, 0) for marker in strays)
        recoveries: list[tuple[TransactionalId, TransactionRecovery]] = []
        shards = self._all()
        for each in [shard.ids[name] for shard in shards for name in sorted(shard.unrecovered)]:
            recovery = recover_transaction(
                each.current,
                opened_by[each],
                unseen=each.current.partitions - opened.keys(),
                was_clean=was_clean,
                fresh_producer_id=await fresh_id_for(each.current),
                now_ms=now_ms,
            )
            markers = [(marker, each.home.leader_epoch) for marker in recovery.markers]
            not_here = await self._write_out(markers)
            left |= not_here
            if not not_here:
                recoveries.append((each, recovery))
        marked = _mark(each for _, each in recoveries).union(*(each.partitions for each in strays))
        await self._partitions.sync(marked - left)
        await self._store(recoveries)
        for each, _ in recoveries:
            shard = self._shards.get(each.home.partition)
            if shard is not None and shard.home is each.home:
                shard.unrecovered.discard(each.name)
        return left

    async def restore_partition(
        self, partition: TopicPartition, producers: Iterable[tuple[int, int]], *, is_whole: bool
    ) -> None:
        """Notes what is lost before any other task runs; then writes the missing markers."""
        opened_by, strays = self._sort({partition: producers})
        for each in self.list_served():
            here = [every.producer for every in opened_by[each]]
            each.on_partition_back(partition, here, is_whole=is_whole)
            strays += [
                MarkerBatch(producer, False, frozenset({partition}))
                for producer in here
                if not each.knows_of(partition, producer)
            ]
        if await self._write_out((marker, 0) for marker in strays):
            raise LogUnavailable("transactions cannot be ended", partition=partition)
        if strays:
            await self._partitions.sync([partition])
        for each in self.list_served():
            if partition in each.unwritten:
                with suppress(HeadwaterError):  # another partition may fail, too
                    await each.go_on()
                if partition in each.unwritten and not each.current.state.is_prepared:
                    raise LogUnavailable("a marker cannot be written", partition=partition)

    def _sort(
        self, opened: OpenByPartition
    ) -> tuple[defaultdict[TransactionalId, list[UnmarkedTransaction]], list[MarkerBatch]]:
        """Sorts unmarked transactions by id; those without an id are aborted once all ids are
        known."""
        everybody = [each for shard in self._shards.values() for each in shard.ids.values()]
        owners = {id_: each for each in everybody for id_ in _producer_ids(each.current)}
        opened_by: defaultdict[TransactionalId, list[UnmarkedTransaction]] = defaultdict(list)
        strays: list[MarkerBatch] = []
        for partition, producers in opened.items():
            for producer in map(ProducerIdentity._make, producers):
                owner = owners.get(producer.producer_id)
                if owner is None and not self._missing:
                    strays.append(MarkerBatch(producer, False, frozenset({partition})))
                elif owner is not None:
                    opened_by[owner].append(UnmarkedTransaction(partition, producer))
        return opened_by, strays

    async def _write_out(
        self, markers: Iterable[tuple[MarkerBatch, int]]
    ) -> frozenset[TopicPartition]:
        """Writes the markers; returns the partitions in which that is not possible at the
        moment."""
        left = frozenset[TopicPartition]()
        for marker, leader_epoch in markers:
            left |= frozenset(
                await self._partitions.write_markers(
                    marker.producer.producer_id,
                    marker.producer.epoch,
                    commit=marker.commit,
                    coordinator_epoch=leader_epoch,
                    version=VERSION_1,
                    partitions=marker.partitions,
                )
            )
        return left

    async def _store(
        self, recoveries: Iterable[tuple[TransactionalId, TransactionRecovery]]
    ) -> None:
        ends: dict[StateStore, int] = {}
        for each, recovery in recoveries:
            ends[each.home] = max(ends.get(each.home, 0), each.restore(recovery))
        for home, end_offset in ends.items():
            await home.log.durable(end_offset)

    def _all(self) -> list[TransactionShard]:
        return list(self._shards.values())

    def _shard_of(self, name: str) -> TransactionShard:
        return self._shards[partition_of(name, self._partition_count())]


def _mark(recoveries: Iterable[TransactionRecovery]) -> frozenset[TopicPartition]:
    """Writes the markers; returns the partitions that got one."""
    return frozenset[TopicPartition]().union(
        *(marker.partitions for each in recoveries for marker in each.markers)
    )


def _producer_ids(stored: StoredTransaction) -> set[int]:
    return {stored.producer_id, stored.next_producer_id} - {NO_PRODUCER_ID}
