"""Producers that live through crashes of their broker: they retry, give up, repeat themselves."""

from dataclasses import dataclass, field
from enum import Enum

from headwater.core_log.foundation.errors import InvalidProducerEpoch, StorageFailed
from headwater.core_log.groups.transaction_coordinator import TransactionCoordinator
from headwater.core_log.groups.transactions import VERSION_1, VERSION_2, ProducerIdentity
from headwater.core_log.model.log import TopicPartition
from headwater.core_log.protocol.error_codes import ErrorCode
from tests.core_log.groups.simulated_world import World

TIMEOUT_MS = 60_000
FENCING = (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH)
"""What a client of version 1 never gets over."""


class Outcome(Enum):
    OPEN = "not ended yet"
    COMMITTED = "told that it is committed"
    ABORTED = "told that it is aborted"
    UNKNOWN = "never told"


@dataclass
class Told:
    """One transaction, as its client saw it."""

    acknowledged: dict[TopicPartition, list[str]] = field(default_factory=dict)
    outcome: Outcome = Outcome.OPEN
    wants_commit: bool = True
    must_abort: bool = False
    announced: set[TopicPartition] = field(default_factory=set)
    """What a client of version 1 has added, which it does once per transaction and partition."""


class Fatal(Exception):
    """The client has to begin anew."""


class Client:
    """One transactional producer after another under the same id; broker after broker."""

    def __init__(self, world: World, name: str, partitions: list[TopicPartition]) -> None:
        self.world, self.name, self.partitions = world, name, partitions
        self.version = world.random.choice([VERSION_1, VERSION_2])
        self.identity: ProducerIdentity | None = None
        self.now: Told | None = None
        self.told: list[Told] = []
        self.sent: list[tuple[ProducerIdentity, bool]] = []
        """Every EndTxn of version 2 that was ever sent: any of them may arrive once more."""
        self.batch_count = self.fenced_count = 0

    async def work(self, coordinator: TransactionCoordinator) -> None:
        """Until the broker dies under it: whatever was not answered then is asked again."""
        while True:
            await self.world.pause()
            try:
                if self.identity is None:
                    await self.start(coordinator)
                elif self.now is None:
                    self.begin()
                elif self._may_write and self.world.random.random() < 0.7:
                    await self.produce(coordinator)
                else:
                    await self.end(coordinator)
            except Fatal as error:
                self.identity, self.now = None, None
                self.fenced_count += error.args[0] in FENCING

    @property
    def _may_write(self) -> bool:
        now = self.now
        return now is not None and now.outcome is Outcome.OPEN and not now.must_abort

    async def start(self, coordinator: TransactionCoordinator) -> None:
        answer = await coordinator.init_producer_id(self.name, timeout_ms=TIMEOUT_MS)
        if answer.error is ErrorCode.NONE:
            self.identity = answer.producer

    def begin(self) -> None:
        self.now = Told(wants_commit=self.world.random.random() < 0.8)
        self.told.append(self.now)

    async def produce(self, coordinator: TransactionCoordinator) -> None:
        assert self.identity is not None and self.now is not None, "only within a transaction"
        at, identity = self.world.random.choice(self.partitions), self.identity
        partition = self.world.data[at]
        self.batch_count += 1
        batch = f"{self.name}/{len(self.told)}/{self.batch_count}"
        self.now.outcome = Outcome.UNKNOWN  # until it is answered, it may be there or not
        if self.version == VERSION_1 and at not in self.now.announced:
            error = await coordinator.add_partitions(self.name, identity, [at])
            if not await self.is_granted(coordinator, error):
                return
            self.now.announced.add(at)
        if partition.open_transactions().get(identity.producer_id) != identity:
            may_add = self.version == VERSION_2
            verdicts = await coordinator.verify_or_add(self.name, *identity, [at], may_add=may_add)
            if not await self.is_granted(coordinator, verdicts[at]):
                return
        try:
            partition.append(identity, batch)
        except StorageFailed:
            self.now.outcome = Outcome.OPEN
            return
        except InvalidProducerEpoch as error:
            await self.give_up(coordinator)
            raise Fatal(ErrorCode.INVALID_PRODUCER_EPOCH) from error
        self.now.acknowledged.setdefault(at, []).append(batch)
        self.now.outcome = Outcome.OPEN

    async def is_granted(self, coordinator: TransactionCoordinator, error: ErrorCode) -> bool:
        assert self.now is not None, "only within a transaction"
        if error is ErrorCode.NONE:
            return True
        self.now.outcome = Outcome.OPEN  # refused, so nothing was written
        if error is ErrorCode.TRANSACTION_ABORTABLE:
            self.now.must_abort, self.now.wants_commit = True, False
            return False
        if not error.is_retriable:
            await self.give_up(coordinator)
            raise Fatal(error)
        return False

    async def give_up(self, coordinator: TransactionCoordinator) -> None:
        """After an error a client may try to abort before it begins anew."""
        assert self.now is not None, "only a transaction is given up"
        self.now.wants_commit, self.now.outcome = False, Outcome.UNKNOWN
        if self.world.random.random() < 0.5:
            await self.end(coordinator)

    async def end(self, coordinator: TransactionCoordinator) -> None:
        assert self.identity is not None and self.now is not None, "only within a transaction"
        now, identity = self.now, self.identity
        is_untold = now.outcome is Outcome.OPEN and not now.must_abort
        if self.version == VERSION_1 and not now.announced and is_untold:
            self.now = None  # such a client does not ask where it has announced nothing
            return
        now.outcome = Outcome.UNKNOWN
        if self.version == VERSION_2:
            self.sent.append((identity, now.wants_commit))
        answer = await coordinator.end(
            self.name, identity, commit=now.wants_commit, version=self.version
        )
        await self.world.pause()
        if answer.error is ErrorCode.NONE:
            now.outcome = Outcome.COMMITTED if now.wants_commit else Outcome.ABORTED
            self.now = None
            if self.version == VERSION_2:
                self.identity = answer.producer
        elif answer.error is ErrorCode.TRANSACTION_ABORTABLE:
            now.wants_commit, now.must_abort = False, True
        elif not answer.error.is_retriable:
            raise Fatal(answer.error)

    async def repeat_itself(self, coordinator: TransactionCoordinator) -> None:
        """An old EndTxn arrives, long after its answer, or twice, or in the wrong order."""
        while True:
            for _ in range(self.world.random.randrange(1, 12)):
                await self.world.pause()
            if self.sent:
                identity, commit = self.world.random.choice(self.sent)
                await coordinator.end(self.name, identity, commit=commit, version=VERSION_2)
