"""Topics of somebody else's, and a source that reads them."""

import os
from collections.abc import Sequence
from contextlib import aclosing
from itertools import count
from typing import Any

import pyarrow as pa

from headwater.connectors.kafka.settings import KafkaSourceSettings
from headwater.connectors.kafka.source import KafkaSource
from headwater.connectors.source import Source
from headwater.core_log.client import KafkaLog
from headwater.core_log.foundation.settings import TopicSettings
from headwater.core_log.model.changes import TableChanges
from headwater.core_log.model.log import TopicPartition
from headwater.core_log.records import arrow_codec
from headwater.core_log.records.record_headers import encode_headers
from headwater.core_log.rows.codec import codec_for
from headwater.core_log.rows.settings import WireSettings
from headwater.sinks.kafka.offset_topic import with_source
from tests.contract.source_suite import After, context, iterate
from tests.slices import schema_of

_numbers = count(1)
NOW_MS = 1_700_000_000_000
TYPED = schema_of(
    "public.orders",
    id=pa.int64(),
    total=pa.decimal128(12, 2),
    day=pa.date32(),
    at=pa.timestamp("us"),
    note=pa.string(),
)
PLAIN = schema_of("public.orders", id=pa.int64(), note=pa.string(), rate=pa.float64())


class Cluster:
    """A cluster with topics of one test's own."""

    def __init__(self, endpoint: str, log: KafkaLog) -> None:
        self.endpoint, self.log = endpoint, log
        self.prefix = f"c{os.getpid()}-{next(_numbers)}"
        self._changes = 0

    async def topic(self, name: str, *, partitions: int = 1) -> str:
        topic = f"{self.prefix}.{name}"
        await self.log.ensure_topic(TopicSettings(name=topic, partitions=partitions))
        return topic

    async def append(
        self,
        topic: str,
        *pairs: tuple[bytes | None, bytes | None],
        partition: int = 0,
        headers: Sequence[tuple[str, bytes | None]] = (),
    ) -> None:
        keys, values = (pa.array(column, pa.binary()) for column in zip(*pairs, strict=True))
        for batch in arrow_codec.encode(
            keys, values, timestamps_ms=NOW_MS, headers=encode_headers(headers)
        ):
            await self.log.append(TopicPartition(topic, partition), batch)

    async def append_changes(
        self, topic: str, changes: TableChanges, wire: WireSettings, *, partition: int = 0
    ) -> None:
        codec = codec_for(wire, topic=topic)
        encoded = codec.encode(with_source(changes, "origin"), now_us=NOW_MS * 1_000)
        pairs = zip(encoded.keys.to_pylist(), encoded.values.to_pylist(), strict=True)
        await self.append(topic, *pairs, partition=partition)

    def source(self, **settings: object) -> KafkaSource:
        chosen = {
            "bootstrap": self.endpoint,
            "topics": f"{self.prefix}.*",
            "retry_for_ms": 5_000,
            "refresh_every_ms": 100,
            **settings,
        }
        return KafkaSource(KafkaSourceSettings.model_validate(chosen), context())


async def read(
    source: Source, resume_from: dict[str, str] | Any = None, *, changes: int
) -> list[After]:
    """Batches with changes or rejects until so many changes came."""
    found: list[After] = []
    async with aclosing(iterate(source, resume_from or {})) as batches:
        async for after in batches:
            if after.batch.tables or after.batch.rejects:
                found.append(after)
            if sum(len(each) for told in found for each in told.batch.tables) >= changes:
                break
    return found
