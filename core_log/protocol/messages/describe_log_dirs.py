"""DescribeLogDirs (key 35), versions 1 to 5: how many bytes each partition holds on each disk of a
broker.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from headwater.core_log.protocol.fields import IGNORABLE, Int16, Int32, Int64, Since
from headwater.core_log.protocol.message import Request, request, response, struct


@request(api_key=35, versions=(1, 5), flexible_from=2)
class DescribeLogDirsRequest(Request["DescribeLogDirsResponse"]):
    topics: Sequence[DescribableLogDirTopic] | None = ()


@struct
class DescribableLogDirTopic:
    topic: str = ""
    partitions: Sequence[Int32] = ()


@response(versions=(1, 5), flexible_from=2)
class DescribeLogDirsResponse:
    throttle_time_ms: Int32 = 0
    error_code: Annotated[Int16, Since(3), IGNORABLE] = 0
    results: Sequence[DescribeLogDirsResult] = ()


@struct
class DescribeLogDirsResult:
    error_code: Int16 = 0
    log_dir: str = ""
    topics: Sequence[DescribeLogDirsTopic] = ()
    total_bytes: Annotated[Int64, Since(4), IGNORABLE] = -1
    usable_bytes: Annotated[Int64, Since(4), IGNORABLE] = -1
    is_cordoned: Annotated[bool, Since(5), IGNORABLE] = False


@struct
class DescribeLogDirsTopic:
    name: str = ""
    partitions: Sequence[DescribeLogDirsPartition] = ()


@struct
class DescribeLogDirsPartition:
    partition_index: Int32 = 0
    partition_size: Int64 = 0
    offset_lag: Int64 = 0
    is_future_key: bool = False
