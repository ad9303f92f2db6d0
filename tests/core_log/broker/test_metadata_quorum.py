"""A broker alone is a quorum of one voter: it keeps its epoch, and says who leads."""

import logging

import pytest

from headwater.core_log.broker.broker import Broker
from headwater.core_log.broker.dispatch import RequestContext
from headwater.core_log.broker.handlers.describe_quorum import handle_describe_quorum
from headwater.core_log.broker.metadata_quorum import MetadataQuorum
from headwater.core_log.foundation.errors import DecodeError
from headwater.core_log.protocol.error_codes import ErrorCode
from headwater.core_log.protocol.message import decode_record
from headwater.core_log.protocol.messages.control_records import (
    ControlRecordKey,
    ControlRecordType,
    LeaderChangeMessage,
)
from headwater.core_log.protocol.messages.describe_quorum import (
    DescribeQuorumPartition,
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    DescribeQuorumTopic,
)
from headwater.core_log.records.record_codec import decode_batch
from headwater.core_log.replication.metadata import METADATA_TOPIC
from headwater.core_log.replication.voters import (
    STATE_FILE,
    ElectionState,
    read_quorum_state,
    write_quorum_state,
)
from headwater.core_log.storage.properties import decode_uuid
from tests.builders import DATA
from tests.core_log.broker.in_memory import started
from tests.fakes import MemoryFiles

NEWER = (
    b'{"leaderId":1,"leaderEpoch":1,"votedId":-1,"votedDirectoryId":"AAAAAAAAAAAAAAAAAAAAAA",'
    b'"data_version":2}'
)
DIRECTORY = DATA / "log" / "__cluster_metadata-0"


def state_of(files: MemoryFiles) -> ElectionState | None:
    return read_quorum_state(files, DIRECTORY)


async def test_every_start_is_a_new_epoch_that_is_stored_before_it_writes() -> None:
    files, epochs = MemoryFiles(), list[int]()
    for _ in range(3):
        broker = await started(files)
        state = state_of(files)
        assert state is not None and state.voted is not None
        assert (state.leader, state.voted.node_id) == (broker.node_id, broker.node_id)
        assert state.voted.directory_id == decode_uuid(broker.store.directory_id)
        epochs.append(state.epoch)
        assert broker.quorum.leader_epoch == state.epoch
        await broker.close()

    assert epochs == [1, 2, 3]


async def test_an_epoch_begins_with_the_change_of_its_leader() -> None:
    broker = await started(MemoryFiles())
    partition = broker.partition(METADATA_TOPIC, 0)
    assert partition is not None

    first = next(iter(partition.log.batches(0)))

    header, records = decode_batch(first)
    assert header.is_control and header.leader_epoch == broker.quorum.leader_epoch
    key = decode_record(ControlRecordKey, records[0].key or b"")
    change = decode_record(LeaderChangeMessage, records[0].value or b"")
    assert key.type == ControlRecordType.LEADER_CHANGE
    assert change.leader_id == broker.node_id
    assert [each.voter_id for each in change.voters] == [broker.node_id]
    await broker.close()


async def test_a_data_directory_of_the_version_before_goes_on_after_its_newest_epoch() -> None:
    files = MemoryFiles()
    broker = await started(files)
    await broker.create_unknown("t", may_create=True)
    await broker.close()
    files.remove(DIRECTORY / STATE_FILE)

    again = await started(files)

    assert again.image.topic("t") is not None
    assert again.quorum.leader_epoch == 2
    assert state_of(files) == ElectionState(2, 1, again.quorum.voters[0])
    await again.close()


async def test_a_damaged_quorum_state_of_an_only_voter_is_made_anew(
    caplog: pytest.LogCaptureFixture,
) -> None:
    files = MemoryFiles()
    await (await started(files)).close()
    files.replace(DIRECTORY / STATE_FILE, b"{")

    with caplog.at_level(logging.WARNING):
        again = await started(files)

    assert "quorum-state is damaged" in caplog.text
    assert again.quorum.leader_epoch == 2
    await again.close()


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", NEWER])
def test_a_file_that_is_no_quorum_state_is_refused(data: bytes) -> None:
    files = MemoryFiles()
    files.replace(DIRECTORY / STATE_FILE, data)

    with pytest.raises(DecodeError, match="quorum-state"):
        state_of(files)


def test_a_state_without_a_vote_is_read_back() -> None:
    files = MemoryFiles()
    write_quorum_state(files, DIRECTORY, ElectionState(7, 2, None))

    assert state_of(files) == ElectionState(7, 2, None)
    assert state_of(MemoryFiles()) is None


async def ask(broker: Broker, topic: str, *, version: int = 2) -> DescribeQuorumResponse:
    partition = DescribeQuorumPartition(partition_index=0)
    request = DescribeQuorumRequest(
        topics=[DescribeQuorumTopic(topic_name=topic, partitions=[partition])]
    )
    context = RequestContext(version, None, "client", "here", 9092)
    answer: DescribeQuorumResponse = await handle_describe_quorum(broker, request, context)
    return answer


async def test_a_broker_alone_describes_a_quorum_of_one() -> None:
    broker = await started(MemoryFiles())
    metadata = broker.partition(METADATA_TOPIC, 0)
    assert metadata is not None

    answer = await ask(broker, METADATA_TOPIC)

    [described] = answer.topics[0].partitions
    [voter] = described.current_voters
    assert (described.error_code, described.leader_id) == (ErrorCode.NONE, broker.node_id)
    assert described.leader_epoch == metadata.leader_epoch == 1
    assert described.high_watermark == metadata.high_watermark == metadata.log.end_offset > 1
    assert (voter.replica_id, voter.log_end_offset) == (1, metadata.log.end_offset)
    assert voter.replica_directory_id == decode_uuid(broker.store.directory_id)
    assert [(each.host, each.port) for each in answer.nodes[0].listeners] == [("here", 9092)]
    await broker.close()


async def test_other_partitions_have_no_quorum() -> None:
    broker = await started(MemoryFiles())

    answer = await ask(broker, "t", version=0)

    assert answer.topics[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    await broker.close()


async def test_nothing_of_an_epoch_is_committed_before_its_first_record_is_on_disk() -> None:
    files = MemoryFiles()
    await (await started(files)).close()
    broker = await started(files)
    log = broker.partition(METADATA_TOPIC, 0)
    assert log is not None
    quorum = MetadataQuorum(
        log.log, files, broker.quorum.voters[0], clock=broker.clock, random=broker._random
    )

    before = quorum.high_watermark
    quorum.on_durable(log.log.durable_offset)
    undurable = quorum.high_watermark
    log.log.sync()
    quorum.on_durable(log.log.durable_offset)

    assert (before, undurable) == (0, 0)
    assert quorum.high_watermark == log.log.end_offset
    await broker.close()
