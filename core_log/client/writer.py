"""A named writer of a Kafka-compatible cluster: one transaction at a time, fenced by its name."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import TypeVar

from headwater.core_log.client.cluster import Cluster
from headwater.core_log.client.producer import (
    BEFORE_IMPLICIT_ADD,
    BatchResult,
    ProducerIdAndEpoch,
    ProducerSequences,
    Sealed,
    append_once,
)
from headwater.core_log.client.transactions import CoordinatorClient
from headwater.core_log.foundation.errors import (
    Fenced,
    HeadwaterError,
    InvalidTransactionState,
    LogRejected,
    LogUnavailable,
)
from headwater.core_log.model.log import Offsets, TopicPartition
from headwater.core_log.records.batch_header import Batch

A = TypeVar("A", TopicPartition, str)


class KafkaTransaction:
    """A transaction that its writer ends. Appends may run concurrently; those to one partition are
    in the log in the order of their calls."""

    def __init__(
        self,
        name: str,
        identity: ProducerIdAndEpoch,
        *,
        lanes: ProducerSequences,
        coordinator: CoordinatorClient,
        cluster: Cluster,
    ) -> None:
        self._name, self._identity, self._lanes = name, identity, lanes
        self._coordinator, self._cluster = coordinator, cluster
        self._announced: set[TopicPartition | str] = set()
        self._announcing = asyncio.Lock()
        self._is_open = True
        self._end: HeadwaterError | None = None  # the reason of its writer, if that has ended it
        self._steps = 0  # in flight
        self.is_begun = False  # whether the coordinator may know of it
        self.failure: BaseException | None = None  # error of the first failed step

    async def append(self, partition: TopicPartition, batch: Batch) -> int:
        return (await self.append_each({partition: batch}))[partition]

    async def append_each(
        self, batches: Mapping[TopicPartition, Batch]
    ) -> Mapping[TopicPartition, int]:
        with self._step():
            await self._announce(
                batches, lambda each: self._coordinator.add_partition(self._identity, each)
            )
            return await self._lanes.append(batches, self._send)

    async def commit_offsets(self, group: str, offsets: Offsets) -> None:
        with self._step():
            await self._announce(
                [group], lambda each: self._coordinator.add_group(self._identity, each)
            )
            await self._coordinator.commit_offsets(self._identity, group, offsets)

    def close(self, reason: HeadwaterError | None = None) -> None:
        """Refuses further steps."""
        self._is_open, self._end = False, self._end or reason
        self.failure = self.failure or reason
        if self._steps and self.failure is None:
            self.failure = LogRejected(
                "the transaction ended before a step of it", hint="await every append inside it"
            )

    @contextmanager
    def _step(self) -> Iterator[None]:
        if not self._is_open:
            ended = LogRejected("the transaction has ended", hint="append inside its block")
            raise self._end or ended
        self.is_begun = True
        self._steps += 1
        try:
            yield
        except BaseException as error:
            self.failure = self.failure or error
            raise
        finally:
            self._steps -= 1

    async def _announce(
        self, wanted: Iterable[A], announce: Callable[[A], Awaitable[None]]
    ) -> None:
        """Announces the partition to the coordinator if the version requires it."""
        if self._coordinator.renews_epochs:
            return
        # also announced ones: no caller overtakes those that wait for the announcement
        async with self._announcing:
            for each in wanted:
                if each not in self._announced:
                    await announce(each)
                    self._announced.add(each)

    async def _send(self, batches: Sealed) -> Mapping[TopicPartition, BatchResult]:
        return await append_once(
            self._cluster,
            batches,
            transactional_id=self._name,
            version_max=None if self._coordinator.renews_epochs else BEFORE_IMPLICIT_ADD,
        )


logger = logging.getLogger(__name__)

SHUT_OUT = (Fenced, InvalidTransactionState)
"""The cluster's errors when this transaction is no longer ours."""


class KafkaWriter:
    """A writer. Once it is unknown how a transaction ended, the writer refuses to continue. Opening
    a new one of the same name ends the open transaction, and its reads are then certain."""

    def __init__(
        self,
        name: str,
        identity: ProducerIdAndEpoch,
        *,
        coordinator: CoordinatorClient,
        cluster: Cluster,
    ) -> None:
        self.name = name
        self._identity, self._coordinator, self._cluster = identity, coordinator, cluster
        self._lanes = ProducerSequences(identity, cluster)
        self._appending = asyncio.Lock()
        self._transaction: KafkaTransaction | None = None
        # the reason why there will be no further transaction
        self._end: HeadwaterError | None = None

    @property
    def is_exactly_once(self) -> bool:
        """Whether the cluster keeps a late message of an ended transaction out of the next one."""
        return self._coordinator.renews_epochs

    async def append(self, partition: TopicPartition, batch: Batch) -> int:
        """Appends in a transaction of its own: only its coordinator knows a newer writer in
        time."""
        async with self._appending, self.transaction() as transaction:
            return await transaction.append(partition, batch)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[KafkaTransaction]:
        transaction = self._begin()
        try:
            yield transaction
            transaction.close()
            await self._commit(transaction)
        except BaseException as error:
            transaction.close()
            if isinstance(transaction.failure, SHUT_OUT):
                raise await self._verdict() from error
            await self._abort(transaction, error)
            raise
        finally:
            self._transaction = None

    async def close(self) -> None:
        """Refuses further transactions, and ends one that is open or whose end is unknown: readers
        of committed records would wait for it. An unreachable cluster ends it by its timeout."""
        transaction, is_fenced = self._transaction, isinstance(self._end, Fenced)
        is_unknown = self._end is not None and not is_fenced
        self._end = self._end or LogUnavailable("the writer was closed", writer=self.name)
        if transaction is not None:
            transaction.close(self._end)
        if is_fenced or not (is_unknown or (transaction is not None and transaction.is_begun)):
            return
        for_ms = self._cluster.settings.abort_for_ms
        try:
            async with asyncio.timeout(for_ms / 1000):
                await self._coordinator.identify(self._identity, for_ms=for_ms)
        except Fenced:
            return
        except (HeadwaterError, TimeoutError) as error:
            logger.warning("writer %s could not end its transaction: %s", self.name, error)

    def _begin(self) -> KafkaTransaction:
        if self._end is not None:
            raise self._end.with_traceback(None)
        if self._transaction is not None:
            raise LogRejected(
                "the writer has a transaction open",
                hint="end it first, or open a writer of another name",
                writer=self.name,
            )
        self._transaction = KafkaTransaction(
            self.name,
            self._identity,
            lanes=self._lanes,
            coordinator=self._coordinator,
            cluster=self._cluster,
        )
        return self._transaction

    async def _commit(self, transaction: KafkaTransaction) -> None:
        if self._end is not None:
            raise self._end
        if transaction.failure is not None:
            raise LogRejected(
                "part of the transaction was refused, so all of it is aborted", writer=self.name
            ) from transaction.failure
        if not transaction.is_begun:
            return
        try:
            self._adopt(await self._coordinator.end(self._identity, commit=True))
        except SHUT_OUT as error:
            transaction.failure = error
            raise
        except BaseException:
            self._lose("the outcome of the last transaction is unknown")
            raise

    async def _abort(self, transaction: KafkaTransaction, reason: BaseException) -> None:
        if self._end is not None or not transaction.is_begun:
            return
        for_ms = self._cluster.settings.abort_for_ms
        try:
            identity = await self._coordinator.end(self._identity, commit=False, for_ms=for_ms)
            if identity == self._identity and transaction.failure is not None:
                # A batch may or may not have arrived, so its sequence cannot be used again.
                identity = await self._coordinator.identify(self._identity, for_ms=for_ms)
            self._adopt(identity)
        except SHUT_OUT:
            await self._verdict()
        except HeadwaterError as error:
            logger.warning("writer %s could not abort after %r: %s", self.name, reason, error)
            self._lose("the last transaction could not be aborted")
        except BaseException:
            self._lose("the last transaction was not ended")
            raise

    async def _verdict(self) -> HeadwaterError:
        """Returns the error. The cluster answers in the same way when it has ended a slow
        transaction; only a newer writer of this name makes it refuse to renew our epoch."""
        for_ms = self._cluster.settings.abort_for_ms
        try:
            self._adopt(await self._coordinator.identify(self._identity, for_ms=for_ms))
        except Fenced as fenced:
            self._end = fenced
            return fenced
        except HeadwaterError as unknown:
            return self._lose("the writer may have been replaced by a newer one", unknown)
        return LogUnavailable(
            "the log has aborted the transaction, probably because it was open for too long",
            hint="raise transaction_timeout_ms, or write less in one transaction",
            writer=self.name,
        )

    def _adopt(self, identity: ProducerIdAndEpoch) -> None:
        """Takes over the id and epoch; sequences begin again with a new epoch."""
        if identity != self._identity:
            self._identity = identity
            self._lanes = ProducerSequences(identity, self._cluster)

    def _lose(self, problem: str, cause: BaseException | None = None) -> HeadwaterError:
        self._end = LogUnavailable(
            problem, hint="open a new writer and read its position again", writer=self.name
        )
        self._end.__cause__ = cause
        return self._end
