"""A real log in a thread of this process, into which tests write changes as pipelines do."""

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from headwater.core_log.embedded import EmbeddedLog
from headwater.core_log.foundation.clock import SystemClock
from headwater.core_log.foundation.settings import BrokerSettings
from headwater.core_log.model.changes import ChangeBatch, Positions, TableChanges
from headwater.core_log.model.log import Log, TopicPartition
from headwater.core_log.records.compression import Compression
from headwater.core_log.rows.settings import WireSettings
from headwater.pipelines.journal.generations import Generations
from headwater.pipelines.journal.internal_topics import internal_topics
from headwater.pipelines.loops.ingest.encoder import Encoder
from headwater.pipelines.loops.ingest.ingest import IngestLimits, ingest
from headwater.pipelines.loops.ingest.table_topics import TopicRules
from headwater.sinks.sink import AppliedOffset, AppliedOffsets
from tests.pipelines.pipeline_in_memory import PIPELINE, SourceWithoutCatalog, Untouched

T = TypeVar("T")


class ServedLog:
    """Its loop runs beside the test, so that the test may block while others read the log."""

    def __init__(self, data: Path) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        settings = BrokerSettings(data=data, listen="127.0.0.1:0", auto_create_topics=False)
        self.log = self.run(lambda: EmbeddedLog.open(settings))
        self._written = 0

    def run(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        return asyncio.run_coroutine_threadsafe(work(), self._loop).result()

    def close(self) -> None:
        self.run(self.log.close)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def write(
        self,
        *transactions: Sequence[TableChanges],
        pipeline: str = PIPELINE,
        partitions: int = 1,
        wire: WireSettings | None = None,
    ) -> None:
        """Each is one transaction of the source; the log may commit several at once."""
        first, self._written = self._written, self._written + len(transactions)
        source = _Written(transactions, first)

        async def work() -> None:
            for topic in internal_topics(history_ms=3_600_000):
                await self.log.ensure_topic(topic)
            await ingest(
                pipeline,
                source,
                self.log,
                new_encoder=lambda generations: self._encoder(
                    pipeline, partitions, wire or WireSettings(), generations
                ),
                limits=IngestLimits(batch_wait_ms=0, transaction_bytes_max=1 << 30),
                clock=SystemClock(),
                report=lambda _: None,
            )

        self.run(work)

    def _encoder(
        self, pipeline: str, partitions: int, wire: WireSettings, generations: Generations
    ) -> Encoder:
        config = {"cleanup.policy": "compact"}
        return Encoder(
            self.log,
            topics=TopicRules(
                pipeline, "{pipeline}.{schema}.{table}", partitions, config, generations
            ),
            wire=wire,
            before_log=Untouched(),
            compression=Compression.ZSTD,
        )

    def offsets(self, topic: str, *, at_end: bool) -> AppliedOffsets:
        """Of every partition: where it begins, or how far it can be read."""
        return self.run(lambda: offsets_of(self.log, topic, at_end=at_end))


async def offsets_of(log: Log, topic: str, *, at_end: bool) -> AppliedOffsets:
    topic_id = await log.topic_id(topic)
    parts = [TopicPartition(topic, number) for number in range(await log.partition_count(topic))]
    bounds = await log.bounds(parts)
    return {
        part: AppliedOffset(topic_id, bounds[part].stable if at_end else bounds[part].start)
        for part in parts
    }


@contextmanager
def served_log(data: Path) -> Iterator[ServedLog]:
    served = ServedLog(data)
    try:
        yield served
    finally:
        served.close()


class _Written(SourceWithoutCatalog):
    """A source of what the test has written down; its position counts transactions."""

    def __init__(self, transactions: Sequence[Sequence[TableChanges]], first: int) -> None:
        self._transactions, self._first = transactions, first

    async def changes(self, resume_from: Positions) -> AsyncGenerator[ChangeBatch, None]:
        for number, changes in enumerate(self._transactions, self._first + 1):
            yield ChangeBatch(tuple(changes), {"stream": str(number)})

    async def acknowledge(self, positions: Positions) -> None:
        """Nothing is kept for others."""
