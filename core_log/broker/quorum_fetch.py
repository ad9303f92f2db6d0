"""Fetch of the metadata's own partition and snapshots by voters and observers of its quorum."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from headwater.core_log.broker.peers import Peers
from headwater.core_log.broker.quorum_messages import Sender, snapshot_request
from headwater.core_log.foundation.errors import HeadwaterError, LogUnavailable, OffsetOutOfRange
from headwater.core_log.protocol.error_codes import ErrorCode
from headwater.core_log.protocol.fetch_frames import FetchFrame
from headwater.core_log.protocol.frames import encode_response
from headwater.core_log.protocol.message import decode
from headwater.core_log.protocol.messages.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
    SnapshotId,
)
from headwater.core_log.replication.follower import EpochEnd, needs_snapshot
from headwater.core_log.replication.metadata import METADATA_ID, METADATA_TOPIC
from headwater.core_log.replication.quorum import QuorumFetch
from headwater.core_log.replication.voters import NOBODY, ReplicaKey

if TYPE_CHECKING:
    from headwater.core_log.broker.broker import Broker

WAIT_S_MAX = 5.0


def is_quorum_fetch(request: FetchFrame) -> bool:
    """Whether a replica asks for the metadata's own partition."""
    topics = {each.topic for each in request.parts}
    return request.replica_id >= 0 and topics in ({METADATA_ID.bytes}, {METADATA_TOPIC})


async def answer_quorum_fetch(
    broker: "Broker", frame: memoryview, position: int, correlation_id: int, version: int
) -> bytes:
    request = decode(FetchRequest, frame, version, position)
    response = await fetch(broker, request)
    return encode_response(response, request.api_key, version, correlation_id)


async def fetch(broker: "Broker", request: FetchRequest) -> FetchResponse:
    if request.cluster_id not in (None, broker.cluster_id):
        return FetchResponse(error_code=ErrorCode.INCONSISTENT_CLUSTER_ID)
    asked = request.topics[0].partitions[0]
    replica_id = max(request.replica_state.replica_id, request.replica_id)
    replica = ReplicaKey(replica_id, asked.replica_directory_id)
    try:
        line = await _fetch(broker, replica, asked, wait_ms=request.max_wait_ms)
    except OffsetOutOfRange:
        line = _line(broker, ErrorCode.OFFSET_OUT_OF_RANGE)
    except HeadwaterError:
        line = _line(broker, ErrorCode.KAFKA_STORAGE_ERROR)
    leader_id = line.current_leader.leader_id
    address = broker.address_of(leader_id)
    endpoints = []
    if address is not None:
        endpoints.append(NodeEndpoint(node_id=leader_id, host=address[0], port=address[1]))
    topic = request.topics[0]
    return FetchResponse(
        responses=(
            FetchableTopicResponse(topic=topic.topic, topic_id=topic.topic_id, partitions=(line,)),
        ),
        node_endpoints=endpoints,
    )


async def _fetch(
    broker: "Broker", replica: ReplicaKey, asked: FetchPartition, *, wait_ms: int
) -> PartitionData:
    driver, quorum = broker.quorum, broker.quorum.quorum
    epoch = asked.current_leader_epoch
    if epoch > quorum.epoch and not driver.is_alone:
        driver.do(quorum.on_leader(NOBODY, epoch, broker.clock.monotonic_ms()))
    if (code := _leader_code(broker, epoch)) is not ErrorCode.NONE:
        return _line(broker, code)
    if _needs_snapshot(broker, asked):
        snapshot = driver.snapshot
        assert snapshot is not None, "a log that begins later has a snapshot"
        return _line(
            broker, snapshot_id=SnapshotId(end_offset=snapshot.end_offset, epoch=snapshot.epoch)
        )
    if replica != driver.replica:
        driver.do(quorum.record_voters())
    diverging, effects = quorum.on_fetch(
        replica, asked.fetch_offset, asked.last_fetched_epoch, broker.clock.monotonic_ms()
    )
    driver.do(effects)
    if diverging is not None:
        end = EpochEndOffset(epoch=diverging.epoch, end_offset=diverging.end_offset)
        return _line(broker, diverging_epoch=end)
    if asked.fetch_offset > driver.end_offset:
        raise OffsetOutOfRange("offset is not in this log", offset=asked.fetch_offset)
    await _wait_for_news(broker, asked, wait_ms)
    if (code := _leader_code(broker, epoch)) is not ErrorCode.NONE:
        return _line(broker, code)
    return _line(broker, records=_read(broker, asked))


def _leader_code(broker: "Broker", epoch: int) -> ErrorCode:
    quorum = broker.quorum
    if epoch < quorum.leader_epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if epoch > quorum.leader_epoch:
        return ErrorCode.UNKNOWN_LEADER_EPOCH
    return ErrorCode.NONE if quorum.is_leader else ErrorCode.NOT_LEADER_OR_FOLLOWER


def _needs_snapshot(broker: "Broker", asked: FetchPartition) -> bool:
    snapshot = broker.quorum.snapshot
    if snapshot is None or broker.quorum.start_offset == 0:
        return False
    return needs_snapshot(
        EpochEnd(snapshot.epoch, snapshot.end_offset),
        last_fetched_epoch=asked.last_fetched_epoch,
        fetch_offset=asked.fetch_offset,
    )


async def _wait_for_news(broker: "Broker", asked: FetchPartition, wait_ms: int) -> None:
    """Waits for records, for a newer high watermark, or for the loss of the lead."""
    driver, quorum = broker.quorum, broker.quorum.quorum
    with suppress(TimeoutError):
        async with asyncio.timeout(min(wait_ms / 1000, WAIT_S_MAX)):
            while (
                _leader_code(broker, asked.current_leader_epoch) is ErrorCode.NONE
                and quorum.sent_to <= asked.fetch_offset
                and quorum.high_watermark <= asked.high_watermark
                and not broker.is_stopping
            ):
                await driver.wait_for_change()


def _read(broker: "Broker", asked: FetchPartition) -> memoryview:
    below = broker.quorum.quorum.sent_to
    if asked.fetch_offset >= below:
        return memoryview(b"")
    ranges = broker.quorum.log.read_across(
        asked.fetch_offset, below=below, bytes_max=asked.partition_max_bytes, at_least_one=True
    )
    return memoryview(b"".join(each.read() for each in ranges))


def _line(
    broker: "Broker",
    code: ErrorCode = ErrorCode.NONE,
    *,
    diverging_epoch: EpochEndOffset | None = None,
    snapshot_id: SnapshotId | None = None,
    records: memoryview | None = None,
) -> PartitionData:
    quorum = broker.quorum
    return PartitionData(
        error_code=code,
        high_watermark=quorum.high_watermark,
        last_stable_offset=quorum.high_watermark,
        log_start_offset=quorum.start_offset,
        diverging_epoch=diverging_epoch or EpochEndOffset(),
        current_leader=LeaderIdAndEpoch(
            leader_id=quorum.leader_id, leader_epoch=quorum.leader_epoch
        ),
        snapshot_id=snapshot_id or SnapshotId(),
        aborted_transactions=None,
        records=memoryview(b"") if records is None else records,
    )


async def fetch_snapshot(
    peers: Peers,
    asked: QuorumFetch,
    wanted: SnapshotId,
    sender: Sender,
    *,
    is_current: Callable[[], bool],
) -> bytes:
    """Reads a snapshot from the leader; a change of leader or epoch meanwhile abandons it."""
    data = bytearray()
    while True:
        request = snapshot_request(asked.epoch, wanted.end_offset, wanted.epoch, len(data), sender)
        answer = await peers.poll(asked.leader, request)
        if answer.error_code or answer.topics[0].partitions[0].error_code:
            raise LogUnavailable("the leader has another snapshot by now")
        part = answer.topics[0].partitions[0]
        data += part.unaligned_records
        if not is_current():
            raise LogUnavailable("the quorum has another leader by now")
        if len(data) >= part.size or not len(part.unaligned_records):
            return bytes(data)
