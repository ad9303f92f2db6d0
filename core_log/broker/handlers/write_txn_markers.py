"""WriteTxnMarkers (key 27), versions 1 to 2: a coordinator ends transactions in partitions of this
broker.

Each marker is answered once it is committed. Version 2: a late marker of a client with
transaction.version 2 is told from one of its next transaction. Deliberately not done: nothing.
"""

import asyncio
from typing import TYPE_CHECKING

from headwater.core_log.broker.dispatch import RequestContext, handles
from headwater.core_log.broker.transaction_markers import TransactionMarker
from headwater.core_log.model.log import TopicPartition
from headwater.core_log.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

if TYPE_CHECKING:
    from headwater.core_log.broker.broker import Broker


@handles(WriteTxnMarkersRequest)
async def handle_write_txn_markers(
    broker: "Broker", request: WriteTxnMarkersRequest, context: RequestContext
) -> WriteTxnMarkersResponse:
    results = await asyncio.gather(*(write(broker, each) for each in request.markers))
    return WriteTxnMarkersResponse(markers=tuple(results))


async def write(broker: "Broker", asked: WritableTxnMarker) -> WritableTxnMarkerResult:
    marker = TransactionMarker(
        producer_id=asked.producer_id,
        producer_epoch=asked.producer_epoch,
        commit=asked.transaction_result,
        coordinator_epoch=asked.coordinator_epoch,
        version=asked.transaction_version,
    )
    partitions = [
        TopicPartition(topic.name, index)
        for topic in asked.topics
        for index in topic.partition_indexes
    ]
    markers = broker.markers
    written = await asyncio.gather(*(markers.write_here(marker, at) for at in partitions))
    errors = dict(zip(partitions, written, strict=True))
    topics = [
        WritableTxnMarkerTopicResult(
            name=topic.name,
            partitions=tuple(
                WritableTxnMarkerPartitionResult(
                    partition_index=index, error_code=errors[TopicPartition(topic.name, index)]
                )
                for index in topic.partition_indexes
            ),
        )
        for topic in asked.topics
    ]
    return WritableTxnMarkerResult(producer_id=asked.producer_id, topics=tuple(topics))
