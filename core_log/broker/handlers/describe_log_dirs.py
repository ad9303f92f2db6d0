"""DescribeLogDirs (key 35), versions 1 to 5: the size of each partition on this broker.

There is one directory, with the free bytes of its disk, and KAFKA_STORAGE_ERROR while this refuses
writes. The lag is the one behind the replica's own high watermark, as in Kafka: always 0 here.
Deliberately not done: the size of the disk, and moves between directories.
"""

from collections import defaultdict
from typing import TYPE_CHECKING

from headwater.core_log.broker.dispatch import RequestContext, handles
from headwater.core_log.broker.partition import Partition
from headwater.core_log.protocol.error_codes import ErrorCode
from headwater.core_log.protocol.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from headwater.core_log.replication.metadata import METADATA_TOPIC

if TYPE_CHECKING:
    from headwater.core_log.broker.broker import Broker


@handles(DescribeLogDirsRequest)
async def handle_describe_log_dirs(
    broker: "Broker", request: DescribeLogDirsRequest, context: RequestContext
) -> DescribeLogDirsResponse:
    wanted: set[tuple[str, int]] | None = None
    if request.topics is not None:
        wanted = {(each.topic, index) for each in request.topics for index in each.partitions}
    topics = defaultdict(list)
    for partition in broker.replicas.all:
        place = (partition.topic, partition.index)
        if partition.topic != METADATA_TOPIC and (wanted is None or place in wanted):
            topics[partition.topic].append(line(partition))
    refused = ErrorCode.KAFKA_STORAGE_ERROR if broker.store.refused else ErrorCode.NONE
    directory = DescribeLogDirsResult(
        error_code=refused,
        log_dir=str(broker.store.log_directory),
        topics=[
            DescribeLogDirsTopic(name=name, partitions=lines) for name, lines in topics.items()
        ],
        usable_bytes=broker.store.free_bytes,
    )
    return DescribeLogDirsResponse(results=[directory])


def line(partition: Partition) -> DescribeLogDirsPartition:
    return DescribeLogDirsPartition(
        partition_index=partition.index, partition_size=partition.log.size, offset_lag=0
    )
