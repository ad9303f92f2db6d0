"""WriteTxnMarkers (key 27), versions 1 to 2: a coordinator asks leaders to write the end markers of
transactions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from headwater.core_log.protocol.fields import IGNORABLE, Int8, Int16, Int32, Int64, Since
from headwater.core_log.protocol.message import Request, request, response, struct


@request(api_key=27, versions=(1, 2), flexible_from=1)
class WriteTxnMarkersRequest(Request["WriteTxnMarkersResponse"]):
    markers: Sequence[WritableTxnMarker] = ()


@struct
class WritableTxnMarker:
    producer_id: Int64 = 0
    producer_epoch: Int16 = 0
    transaction_result: bool = False
    topics: Sequence[WritableTxnMarkerTopic] = ()
    coordinator_epoch: Int32 = 0
    transaction_version: Annotated[Int8, Since(2), IGNORABLE] = 0


@struct
class WritableTxnMarkerTopic:
    name: str = ""
    partition_indexes: Sequence[Int32] = ()


@response(versions=(1, 2), flexible_from=1)
class WriteTxnMarkersResponse:
    markers: Sequence[WritableTxnMarkerResult] = ()


@struct
class WritableTxnMarkerResult:
    producer_id: Int64 = 0
    topics: Sequence[WritableTxnMarkerTopicResult] = ()


@struct
class WritableTxnMarkerTopicResult:
    name: str = ""
    partitions: Sequence[WritableTxnMarkerPartitionResult] = ()


@struct
class WritableTxnMarkerPartitionResult:
    partition_index: Int32 = 0
    error_code: Int16 = 0
