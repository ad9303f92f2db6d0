"""Topics of what belongs to no table: ends of transactions, logical messages, heartbeats."""

from collections.abc import AsyncIterator

from headwater.core_log.foundation.settings import TopicSettings
from headwater.core_log.model.changes import EventMessages
from headwater.core_log.model.log import Log, TopicPartition
from headwater.core_log.records import arrow_codec
from headwater.core_log.records.batch_header import Batch
from headwater.core_log.records.compression import Compression

KINDS = ("transaction", "message", "heartbeat")
RETENTION_MS = 7 * 24 * 3_600_000


def notice_topic(pipeline: str, kind: str) -> TopicSettings:
    """Notices are read as they come, and kept for a week."""
    return TopicSettings(
        name=f"{pipeline}.{kind}",
        config={"cleanup.policy": "delete", "retention.ms": str(RETENTION_MS)},
    )


class EventTopics:
    """Creates each topic when something is first to be said there."""

    def __init__(self, log: Log, pipeline: str) -> None:
        self._log, self._pipeline = log, pipeline
        self._known: set[str] = set()

    async def encode(
        self, notices: EventMessages, *, now_ms: int
    ) -> AsyncIterator[tuple[TopicPartition, Batch]]:
        topic = notice_topic(self._pipeline, notices.kind)
        if notices.kind not in self._known:
            await self._log.ensure_topic(topic)
            self._known.add(notices.kind)
        for batch in arrow_codec.encode(
            notices.keys, notices.values, timestamps_ms=now_ms, compression=Compression.ZSTD
        ):
            yield TopicPartition(topic.name, 0), batch
