"""What a broker tells of its cluster and disk, and which records it deletes, as Kafka does it."""

from typing import Any

import pytest

from headwater.core_log.broker import partition as partition_module
from headwater.core_log.broker.broker import Broker
from headwater.core_log.protocol.error_codes import ErrorCode
from headwater.core_log.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from headwater.core_log.protocol.messages.describe_cluster import DescribeClusterRequest
from headwater.core_log.protocol.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
)
from headwater.core_log.protocol.messages.describe_quorum import (
    DescribeQuorumPartition,
    DescribeQuorumRequest,
    DescribeQuorumTopic,
)
from headwater.core_log.protocol.messages.find_coordinator import FindCoordinatorRequest
from headwater.core_log.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from headwater.core_log.protocol.messages.metadata import MetadataRequest
from headwater.core_log.replication.metadata import METADATA_TOPIC, OFFSETS_TOPIC
from tests.builders import Sequenced, append
from tests.core_log.broker.in_memory import ask, create, fill, started, versions
from tests.fakes import MemoryFiles

NONE = ErrorCode.NONE
EARLIEST, LATEST = -2, -1


@pytest.mark.parametrize("version", versions(DescribeClusterRequest))
async def test_the_cluster_is_this_broker_where_it_was_asked(broker: Broker, version: int) -> None:
    response = await ask(broker, DescribeClusterRequest(), version)

    assert response.error_code == NONE
    assert (response.cluster_id, response.controller_id) == (broker.cluster_id, 1)
    assert [(each.broker_id, each.host, each.port) for each in response.brokers] == [
        (1, "127.0.0.1", 19092)
    ]


async def test_an_advertised_address_is_what_every_api_tells() -> None:
    broker = await started(MemoryFiles(), advertise="log.example:29092")
    partition = DescribeQuorumPartition(partition_index=0)
    quorum = DescribeQuorumTopic(topic_name=METADATA_TOPIC, partitions=[partition])

    told = [
        (await ask(broker, MetadataRequest())).brokers[0],
        (await ask(broker, DescribeClusterRequest())).brokers[0],
        (await ask(broker, DescribeQuorumRequest(topics=[quorum]))).nodes[0].listeners[0],
        (await ask(broker, FindCoordinatorRequest(coordinator_keys=("g",)))).coordinators[0],
    ]

    assert [(each.host, each.port) for each in told] == [("log.example", 29092)] * 4
    await broker.close()


async def test_controllers_are_asked_for_elsewhere(broker: Broker) -> None:
    controllers = await ask(broker, DescribeClusterRequest(endpoint_type=2))
    nonsense = await ask(broker, DescribeClusterRequest(endpoint_type=7))

    assert controllers.error_code == ErrorCode.MISMATCHED_ENDPOINT_TYPE
    assert nonsense.error_code == ErrorCode.UNSUPPORTED_ENDPOINT_TYPE


@pytest.mark.parametrize("version", versions(DescribeLogDirsRequest))
async def test_bytes_are_shown_per_partition(broker: Broker, version: int) -> None:
    await create(broker, "t", partitions=2)
    await create(broker, "u")
    await fill(broker, "t", 3)
    some = [DescribableLogDirTopic(topic="t", partitions=[0, 9])]

    everything = await ask(broker, DescribeLogDirsRequest(topics=None), version)
    chosen = await ask(broker, DescribeLogDirsRequest(topics=some), version)

    assert len(everything.results) == 1 and everything.results[0].log_dir == "/data/log"
    assert {each.name: len(each.partitions) for each in everything.results[0].topics} == {
        "t": 2,
        "u": 1,
    }
    [topic] = chosen.results[0].topics
    [partition] = topic.partitions
    assert (partition.partition_index, partition.is_future_key) == (0, False)
    assert partition.partition_size > 3 * 61


async def delete_before(broker: Broker, topic: str, offset: int, *, index: int = 0) -> Any:
    partitions = [DeleteRecordsPartition(partition_index=index, offset=offset)]
    request = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=topic, partitions=partitions)])
    response = await ask(broker, request)
    [outcome] = response.topics[0].partitions
    return outcome


@pytest.mark.parametrize(("offset", "start"), [(0, 0), (3, 3), (5, 5), (-1, 5)])
async def test_records_are_deleted_up_to_an_offset(broker: Broker, offset: int, start: int) -> None:
    await create(broker, "t")
    await fill(broker, "t", 5)

    outcome = await delete_before(broker, "t", offset)

    partition = broker.find_led("t", 0)
    assert partition is not None and partition.log.start_offset == start
    assert (outcome.error_code, outcome.low_watermark) == (NONE, start)


async def offset_at(broker: Broker, topic: str, timestamp: int) -> int:
    """As a reader of committed records asks for it."""
    wanted = ListOffsetsPartition(partition_index=0, timestamp=timestamp, current_leader_epoch=-1)
    topics = (ListOffsetsTopic(name=topic, partitions=(wanted,)),)
    request = ListOffsetsRequest(replica_id=-1, isolation_level=1, topics=topics)
    answer = await ask(broker, request)
    return int(answer.topics[0].partitions[0].offset)


async def test_the_end_is_never_below_the_start_though_the_start_of_a_transaction_is_deleted(
    broker: Broker,
) -> None:
    await create(broker, "t")
    partition = broker.find_led("t", 0)
    assert partition is not None
    append(partition.log, "open", producer=Sequenced(7, is_transactional=True))
    await fill(broker, "t", 4)

    await delete_before(broker, "t", 3)

    assert (await offset_at(broker, "t", EARLIEST), await offset_at(broker, "t", LATEST)) == (3, 3)
    assert partition.last_stable_offset == 3


async def test_deleting_less_than_before_changes_nothing(broker: Broker) -> None:
    await create(broker, "t")
    await fill(broker, "t", 5)
    await delete_before(broker, "t", 4)

    outcome = await delete_before(broker, "t", 2)

    assert (outcome.error_code, outcome.low_watermark) == (NONE, 4)


async def test_a_deletion_of_records_that_are_not_on_disk_in_time_may_be_repeated(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partition_module, "DISK_WAIT_S_MAX", 0.01)
    await create(broker, "t")
    partition = broker.find_led("t", 0)
    assert partition is not None
    append(partition.log, "written, and not synced", timestamp_ms=1)

    outcome = await delete_before(broker, "t", 1)
    beyond = await delete_before(broker, "t", 2)
    partition.on_written(is_urgent=True)
    await partition.wait_committed(1)
    again = await delete_before(broker, "t", 1)

    assert outcome.error_code == ErrorCode.REQUEST_TIMED_OUT
    assert (again.error_code, again.low_watermark) == (NONE, 1)
    assert beyond.error_code == ErrorCode.OFFSET_OUT_OF_RANGE


async def test_records_that_must_stay_are_not_deleted(broker: Broker) -> None:
    await create(broker, "t")
    await create(broker, "compacted", cleanup_policy="compact")
    await create(broker, "both", cleanup_policy="compact,delete")
    await broker.create_unknown(OFFSETS_TOPIC, may_create=True)
    for topic in ("t", "compacted", "both"):
        await fill(broker, topic, 2)

    outcomes = {
        "beyond": await delete_before(broker, "t", 3),
        "negative": await delete_before(broker, "t", -2),
        "compacted": await delete_before(broker, "compacted", 1),
        "internal": await delete_before(broker, OFFSETS_TOPIC, 0),
        "partition": await delete_before(broker, "t", 1, index=7),
        "topic": await delete_before(broker, "missing", 1),
        "both": await delete_before(broker, "both", 1),
    }

    assert {name: each.error_code for name, each in outcomes.items()} == {
        "beyond": ErrorCode.OFFSET_OUT_OF_RANGE,
        "negative": ErrorCode.OFFSET_OUT_OF_RANGE,
        "compacted": ErrorCode.POLICY_VIOLATION,
        "internal": ErrorCode.INVALID_TOPIC_EXCEPTION,
        "partition": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        "topic": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        "both": NONE,
    }
    assert [each.low_watermark for each in outcomes.values()] == [-1] * 6 + [1]


async def test_records_of_the_metadata_log_are_not_deleted(broker: Broker) -> None:
    """They say which topics there are, and who may do what."""
    await create(broker, "t")

    answer = await delete_before(broker, METADATA_TOPIC, -1)

    assert answer.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    partition = broker.find_led(METADATA_TOPIC, 0)
    assert partition is not None
    assert partition.log.start_offset == 0
