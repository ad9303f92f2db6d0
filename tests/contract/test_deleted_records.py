"""Records that were just appended can be deleted."""

import asyncio

from headwater.core_log.protocol.error_codes import ErrorCode
from headwater.core_log.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from tests.builders import batch
from tests.contract.foreign_topics import Cluster
from tests.crash.plain_client import Wire

DELETE_VERSION = 2


async def test_records_appended_without_waiting_for_the_disk_can_be_deleted_at_once(
    cluster: Cluster,
) -> None:
    topic = await cluster.topic("short")
    host, port = cluster.endpoint.rsplit(":", 1)

    def delete(wire: Wire, number: int) -> tuple[int, int]:
        wire.produce(topic, {0: bytes(batch("gone"))}, acks=1)
        part = DeleteRecordsPartition(partition_index=0, offset=number + 1)
        request = DeleteRecordsRequest(
            topics=[DeleteRecordsTopic(name=topic, partitions=[part])], timeout_ms=5_000
        )
        found = wire.ask(request, DELETE_VERSION).topics[0].partitions[0]
        return found.error_code, found.low_watermark

    def delete_often() -> list[tuple[int, int]]:
        with Wire((host, int(port))) as wire:
            return [delete(wire, number) for number in range(20)]

    deleted = await asyncio.to_thread(delete_often)

    assert deleted == [(ErrorCode.NONE, number + 1) for number in range(20)]
