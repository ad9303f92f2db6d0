"""Everybody who uses a cluster while its nodes die: our writers, relay and readers, and those of
librdkafka."""

import asyncio
from collections.abc import Mapping, Sequence
from random import Random

from headwater.core_log.client import KafkaLog, KafkaSettings
from headwater.core_log.foundation.clock import SystemClock
from headwater.core_log.foundation.errors import HeadwaterError, LogUnavailable
from headwater.core_log.foundation.settings import TopicSettings
from headwater.core_log.model.log import Isolation, TopicPartition
from tests.cluster.foreign_clients import (
    ForeignClient,
    ForeignWiring,
    GroupClient,
    IdempotentClient,
    TransactionalClient,
)
from tests.cluster.nodes import COUNT
from tests.simulation.checker import Observed, Outcome, Sent
from tests.simulation.last_look import drain_relay, read_everything, settle
from tests.simulation.load import (
    AppendingClient,
    Client,
    ReaderClient,
    RelayClient,
    Wiring,
    WriterClient,
    batch_of,
)

IN_SYNC_MIN = {"min.insync.replicas": "2"}
COMPACTED = {
    **IN_SYNC_MIN,
    "cleanup.policy": "compact",
    "segment.ms": "2000",
    "min.cleanable.dirty.ratio": "0.01",
    "min.compaction.lag.ms": "0",
}
TOPICS = [
    TopicSettings(name="orders", partitions=3, config=IN_SYNC_MIN),
    TopicSettings(name="copies", partitions=2, config=IN_SYNC_MIN),
    TopicSettings(name="newest", partitions=1, config=COMPACTED),
]
ORDERS, COPIES, NEWEST = (
    [TopicPartition(topic.name, index) for index in range(topic.partitions)] for topic in TOPICS
)
EVERYTHING = [*ORDERS, *COPIES, *NEWEST]
GROUP = "readers"
PROGRESS_S_MAX = 180.0
"""Who has done nothing for so long will never go on: the history has failed."""
LOOK_S = 0.05


def settings_for(bootstrap: Sequence[str], *, retry_for_ms: int = 30_000) -> KafkaSettings:
    return KafkaSettings(
        bootstrap=list(bootstrap),
        connect_wait_ms_max=2_000,
        request_wait_ms_max=10_000,
        first_answer_ms_max=30_000,
        retry_for_ms=retry_for_ms,
        retry_delay_ms_max=200,
        transaction_timeout_ms=30_000,
        abort_for_ms=2_000,
        replication_factor=max(COUNT, len(bootstrap)),
    )


class Workload:
    """Clients at work, and all that they were told."""

    def __init__(self, bootstrap: Sequence[str], random: Random) -> None:
        self._bootstrap, self._random = bootstrap, random
        self.seen = Observed(compacted={each.topic for each in NEWEST})
        self.ends: Mapping[TopicPartition, int] = {}
        """Of what was committed in the end."""
        self._works: list[asyncio.Future[None]] = []
        self.clients: list[Client | ForeignClient] = []
        self._readers: list[Client] = []

    async def begin(self) -> None:
        log = self.open_log()
        await log.ensure_topic(*TOPICS)
        await log.close()
        self.clients = [
            WriterClient(self._wire("w1"), ORDERS),
            WriterClient(self._wire("keyed"), NEWEST, is_keyed=True),
            AppendingClient(self._wire("plain"), ORDERS),
            RelayClient(self._wire("relay"), ORDERS, COPIES),
            IdempotentClient(self._wire_foreign("idempotent"), ORDERS),
            TransactionalClient(self._wire_foreign("transactions"), ORDERS),
        ]
        self._readers = [
            ReaderClient(self._wire(str(each)), EVERYTHING, each) for each in Isolation
        ]
        self._members = [
            GroupClient(self._wire_foreign(f"{GROUP}/m{number}"), ["orders"]) for number in (1, 2)
        ]
        everybody = [*self.clients, *self._readers, *self._members]
        self._works = [asyncio.ensure_future(each.work()) for each in everybody]

    def _fork(self) -> Random:
        return Random(self._random.random())

    def open_log(self, *, retry_for_ms: int = 30_000) -> KafkaLog:
        settings = settings_for(self._bootstrap, retry_for_ms=retry_for_ms)
        return KafkaLog(settings, random=self._fork())

    def _wire(self, name: str) -> Wiring:
        settings = settings_for(self._bootstrap)
        return Wiring(
            name,
            lambda random: KafkaLog(settings, random=random),
            SystemClock(),
            self._fork(),
            self.seen,
        )

    def _wire_foreign(self, name: str) -> ForeignWiring:
        return ForeignWiring(name, self._bootstrap, self._fork(), self.seen)

    async def work(self, steps: int) -> None:
        """Waits until every writer has succeeded so many times more."""
        wanted = {each.name: each.done_count + steps for each in self.clients}
        loop = asyncio.get_running_loop()
        end_s, before = loop.time() + PROGRESS_S_MAX, -1
        while waiting := [each for each in self.clients if each.done_count < wanted[each.name]]:
            self._check()
            done = sum(each.done_count for each in waiting)
            if done > before:
                end_s, before = loop.time() + PROGRESS_S_MAX, done
            assert loop.time() < end_s, f"{[each.name for each in waiting]} do not go on"
            await asyncio.sleep(LOOK_S)

    def _check(self) -> None:
        broken = [each.exception() for each in self._works if each.done()]
        assert not broken, broken

    async def is_refused(self) -> bool:
        """Whether a write with acks=all is answered with an error, or not at all."""
        log = self.open_log(retry_for_ms=2_000)
        value = f"probe/{self.seen.place()}"
        sent = Sent("probe", 0, [(ORDERS[0], value)], is_exact=False)
        self.seen.sent.append(sent)
        try:
            await log.append(ORDERS[0], batch_of([value], SystemClock().now_ms()))
            sent.outcome = Outcome.COMMITTED
            return False
        except LogUnavailable:
            return True
        finally:
            await log.close()

    async def finish(self) -> None:
        """Once nothing fails any more: lets everybody come to an end, and reads everything."""
        await settle(self.clients, self.seen, within_s=PROGRESS_S_MAX)  # type: ignore[arg-type]
        for each in [*self.clients, *self._readers]:
            each.is_over = True
        await asyncio.gather(*self._works[: len(self.clients) + len(self._readers)])
        log = self.open_log()
        try:
            relay = next(each for each in self.clients if isinstance(each, RelayClient))
            await drain_relay(relay, self.seen, within_s=PROGRESS_S_MAX)
            await read_everything(log, EVERYTHING, self.seen, within_s=PROGRESS_S_MAX)
            await self._finish_group(log)
            bounds = await log.bounds([*ORDERS, *COPIES])
            self.ends = {at: each.end for at, each in bounds.items()}
        except HeadwaterError as error:
            self.seen.stuck.append(str(error))
        self.abandon()
        await asyncio.gather(*self._works)
        await log.close()
        for each in [*self.clients, *self._readers]:
            if isinstance(each, Client):
                await each.log.close()

    async def _finish_group(self, log: KafkaLog) -> None:
        """Lets the group read all that there is."""
        loop = asyncio.get_running_loop()
        end_s = loop.time() + PROGRESS_S_MAX
        while True:
            reached = await log.committed_offsets(GROUP)
            self.seen.group_final = {(GROUP, at): each for at, each in reached.items()}
            behind = [
                str(at)
                for at in ORDERS
                if (held := self.seen.final.get(at)) and reached.get(at, 0) <= held[-1][0]
            ]
            if not behind:
                return
            if loop.time() > end_s:
                said = [each.last_error for each in self._members]
                self.seen.stuck += [f"{GROUP} stand still in {each}: {said}" for each in behind]
                return
            await asyncio.sleep(LOOK_S)

    def abandon(self) -> None:
        """Nothing is begun any more."""
        for each in [*self.clients, *self._readers, *self._members]:
            each.is_over = True
