"""The two requests that are read in place say the same as their declared messages."""

from dataclasses import dataclass
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.core_log.foundation.errors import DecodeError
from headwater.core_log.protocol.fetch_frames import (
    FetchLine,
    FetchPart,
    read_fetch,
    write_fetch_answer,
)
from headwater.core_log.protocol.frames import (
    encode_request,
    read_request_header,
    read_response_header,
)
from headwater.core_log.protocol.inter_broker_messages import (
    ReplicaFetchPartition,
    ReplicaFetchRequest,
    ReplicaFetchResponse,
    ReplicaFetchTopic,
)
from headwater.core_log.protocol.message import decode, encode
from headwater.core_log.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    ReplicaState,
)
from headwater.core_log.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from headwater.core_log.protocol.produce_frames import (
    PartAnswer,
    ProducePart,
    read_produce,
    write_produce_answer,
)


@dataclass(frozen=True)
class Stored:
    """Stands for a stretch of a segment file."""

    data: bytes


NAMES = st.text("abcdefghij._-é", min_size=1, max_size=20)
IDS = st.uuids()
INDEXES = st.integers(0, 2**31 - 1)
OFFSETS = st.integers(-1, 2**63 - 1)
PRODUCE_VERSIONS = st.integers(3, 13)
FETCH_VERSIONS = st.integers(4, 18)


def framed(request: object, version: int) -> tuple[memoryview, int]:
    frame = memoryview(encode_request(request, version, 7, "client"))[4:]  # type: ignore[arg-type]
    return frame, read_request_header(frame).body_position


@given(
    version=PRODUCE_VERSIONS,
    transactional_id=st.none() | NAMES,
    acks=st.sampled_from((-1, 0, 1)),
    timeout_ms=INDEXES,
    topics=st.lists(
        st.tuples(NAMES, IDS, st.lists(st.tuples(INDEXES, st.none() | st.binary(max_size=300)))),
        max_size=4,
    ),
)
def test_a_produce_request_reads_as_its_message_says(
    version: int,
    transactional_id: str | None,
    acks: int,
    timeout_ms: int,
    topics: list[tuple[str, UUID, list[tuple[int, bytes | None]]]],
) -> None:
    has_ids = version >= 13
    request = ProduceRequest(
        transactional_id=transactional_id,
        acks=acks,
        timeout_ms=timeout_ms,
        topic_data=[
            TopicProduceData(
                **({"topic_id": topic_id} if has_ids else {"name": name}),
                partition_data=[
                    PartitionProduceData(
                        index=index, records=None if records is None else memoryview(records)
                    )
                    for index, records in parts
                ],
            )
            for name, topic_id, parts in topics
        ],
    )

    read = read_produce(*framed(request, version), version)

    assert (read.transactional_id, read.acks, read.timeout_ms) == (
        transactional_id,
        acks,
        timeout_ms,
    )
    assert [(p.topic, p.partition, p.records and bytes(p.records)) for p in read.parts] == [
        (topic_id.bytes if has_ids else name, index, records)
        for name, topic_id, parts in topics
        for index, records in parts
    ]


@given(
    version=PRODUCE_VERSIONS,
    lines=st.lists(
        st.tuples(
            NAMES,
            IDS,
            INDEXES,
            st.integers(-1, 130),
            OFFSETS,
            OFFSETS,
            OFFSETS,
            st.none() | NAMES,
            st.lists(st.tuples(INDEXES, NAMES), max_size=3),
        ),
        max_size=6,
    ),
)
def test_a_produce_answer_is_what_its_message_reads(
    version: int,
    lines: list[tuple[str, UUID, int, int, int, int, int, str | None, list[tuple[int, str]]]],
) -> None:
    has_ids = version >= 13
    parts = [ProducePart(line[1].bytes if has_ids else line[0], line[2], None) for line in lines]
    answers = [PartAnswer(*line[3:]) for line in lines]

    frame = memoryview(write_produce_answer(parts, answers, 9, version))

    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    correlation_id, position = read_response_header(frame[4:], 0, version)
    response = decode(ProduceResponse, frame[4:], version, position)
    assert correlation_id == 9
    read = [
        (
            topic.topic_id.bytes if has_ids else topic.name,
            part.index,
            part.error_code,
            part.base_offset,
            part.log_append_time_ms,
            part.log_start_offset if version >= 5 else -1,
            part.error_message if version >= 8 else None,
            [(each.batch_index, each.batch_index_error_message) for each in part.record_errors],
        )
        for topic in response.responses
        for part in topic.partition_responses
    ]
    assert read == [
        (
            part.topic,
            part.partition,
            answer.error_code,
            answer.base_offset,
            answer.append_time_ms,
            answer.log_start_offset if version >= 5 else -1,
            answer.message if version >= 8 else None,
            list(answer.record_errors) if version >= 8 else [],
        )
        for part, answer in zip(parts, answers, strict=True)
    ]


@given(
    version=FETCH_VERSIONS,
    head=st.tuples(INDEXES, INDEXES, INDEXES, INDEXES, st.sampled_from((0, 1))),
    session=st.tuples(INDEXES, st.integers(-1, 2**31 - 1)),
    topics=st.lists(
        st.tuples(
            NAMES,
            IDS,
            st.lists(st.tuples(INDEXES, INDEXES, OFFSETS, INDEXES, OFFSETS, INDEXES), max_size=4),
        ),
        max_size=4,
    ),
    rack=NAMES,
    forgotten=st.lists(st.tuples(NAMES, IDS, st.lists(INDEXES, max_size=3)), max_size=3),
)
def test_a_fetch_request_reads_as_its_message_says(
    version: int,
    head: tuple[int, int, int, int, int],
    session: tuple[int, int],
    topics: list[tuple[str, UUID, list[tuple[int, int, int, int, int, int]]]],
    rack: str,
    forgotten: list[tuple[str, UUID, list[int]]],
) -> None:
    has_ids, replica_id = version >= 13, head[0]
    state = ReplicaState(replica_id=replica_id, replica_epoch=5)
    request = FetchRequest(
        replica_id=replica_id if version < 15 else -1,
        replica_state=state if version >= 15 else ReplicaState(),
        max_wait_ms=head[1],
        min_bytes=head[2],
        max_bytes=head[3],
        isolation_level=head[4],
        session_id=session[0] if version >= 7 else 0,
        session_epoch=session[1] if version >= 7 else -1,
        forgotten_topics_data=[
            ForgottenTopic(
                **({"topic_id": topic_id} if has_ids else {"topic": name}), partitions=indexes
            )
            for name, topic_id, indexes in forgotten
            if version >= 7
        ],
        rack_id=rack,
        topics=[
            FetchTopic(
                **({"topic_id": topic_id} if has_ids else {"topic": name}),
                partitions=[
                    FetchPartition(
                        partition=index,
                        fetch_offset=offset,
                        partition_max_bytes=size,
                        current_leader_epoch=epoch if version >= 9 else -1,
                        last_fetched_epoch=last if version >= 12 else -1,
                        log_start_offset=start if version >= 5 else -1,
                    )
                    for index, epoch, offset, last, start, size in parts
                ],
            )
            for name, topic_id, parts in topics
        ],
    )

    read = read_fetch(*framed(request, version), version)

    assert (read.replica_id, *read[2:6]) == head
    assert read.replica_epoch == (5 if version >= 15 else -1)
    assert (read.session_id, read.session_epoch) == (session if version >= 7 else (0, -1))
    assert read.rack == (rack if version >= 11 else "")
    assert read.parts == [
        FetchPart(
            topic_id.bytes if has_ids else name,
            index,
            epoch if version >= 9 else -1,
            offset,
            last if version >= 12 else -1,
            start if version >= 5 else -1,
            size,
        )
        for name, topic_id, parts in topics
        for index, epoch, offset, last, start, size in parts
    ]


@given(
    version=FETCH_VERSIONS,
    lines=st.lists(
        st.tuples(
            NAMES,
            IDS,
            INDEXES,
            st.integers(-1, 130),
            st.tuples(OFFSETS, OFFSETS, OFFSETS),
            st.none() | st.lists(st.tuples(OFFSETS, OFFSETS), max_size=3),
            st.binary(max_size=100),
            st.none() | st.tuples(INDEXES, OFFSETS),
            st.integers(-1, 9),
        ),
        max_size=6,
    ),
)
def test_a_fetch_answer_is_what_its_message_reads(
    version: int,
    lines: list[
        tuple[
            str,
            UUID,
            int,
            int,
            tuple[int, int, int],
            list[tuple[int, int]] | None,
            bytes,
            tuple[int, int] | None,
            int,
        ]
    ],
) -> None:
    has_ids = version >= 13
    parts = [
        FetchPart(line[1].bytes if has_ids else line[0], line[2], -1, 0, -1, -1, 0)
        for line in lines
    ]
    answers = [
        FetchLine(
            code,
            *marks,
            aborted,
            [Stored(records[:3]), Stored(records[3:])],
            len(records),
            diverging,
            read_replica=replica,
        )
        for _, _, _, code, marks, aborted, records, diverging, replica in lines
    ]

    chunks = write_fetch_answer(parts, answers, 9, version)

    frame = memoryview(b"".join(c if isinstance(c, bytes) else c.data for c in chunks))
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    _, position = read_response_header(frame[4:], 1, version)
    response = decode(FetchResponse, frame[4:], version, position)
    read = [
        (topic.topic_id.bytes if has_ids else topic.topic, part)
        for topic in response.responses
        for part in topic.partitions
    ]
    assert [topic for topic, _ in read] == [part.topic for part in parts]
    for (_, part), wanted, answer in zip(read, parts, answers, strict=True):
        assert (part.partition_index, part.error_code) == (wanted.partition, answer.error_code)
        assert part.high_watermark == answer.high_watermark
        assert part.last_stable_offset == answer.last_stable_offset
        assert part.preferred_read_replica == (answer.read_replica if version >= 11 else -1)
        assert bytes(part.records or b"") == b"".join(each.data for each in answer.records)
        aborted = part.aborted_transactions
        assert (
            None if aborted is None else [(each.producer_id, each.first_offset) for each in aborted]
        ) == answer.aborted
        if version >= 12 and answer.diverging is not None:
            assert (part.diverging_epoch.epoch, part.diverging_epoch.end_offset) == answer.diverging


@pytest.mark.parametrize("version", [3, 8, 9, 13])
@given(noise=st.binary(max_size=200))
def test_noise_is_refused_as_a_produce_request(version: int, noise: bytes) -> None:
    try:
        read_produce(memoryview(noise), 0, version)
    except DecodeError:
        return


@pytest.mark.parametrize("version", [4, 7, 12, 18])
@given(noise=st.binary(max_size=200))
def test_noise_is_refused_as_a_fetch_request(version: int, noise: bytes) -> None:
    try:
        read_fetch(memoryview(noise), 0, version)
    except DecodeError:
        return


@given(data=st.data(), marks=st.tuples(OFFSETS, OFFSETS, OFFSETS))
def test_a_fetch_between_brokers_is_an_ordinary_one_with_more_tags(
    data: st.DataObject, marks: tuple[int, int, int]
) -> None:
    topic_id, place = data.draw(IDS), data.draw(INDEXES)
    known: dict[str, Any] = {"current_leader_epoch": 3, "fetch_offset": 5}
    parts = (FetchPartition(partition=place, **known),)
    ordinary = FetchRequest(
        replica_state=ReplicaState(replica_id=2, replica_epoch=9),
        topics=(FetchTopic(topic_id=topic_id, partitions=parts),),
    )

    def between(**more: Any) -> ReplicaFetchRequest:
        part = ReplicaFetchPartition(partition=place, **known, **more)
        topics = [ReplicaFetchTopic(topic_id=topic_id, partitions=[part])]
        return ReplicaFetchRequest(replica_state=ordinary.replica_state, topics=topics)

    assert encode(between(), 18) == encode(ordinary, 18)
    named = dict(zip(("cleaned_to", "deletes_dropped_to", "agreed_to"), marks, strict=True))
    tagged = memoryview(encode(between(**named), 18))
    assert decode(FetchRequest, tagged, 18) == ordinary
    part = decode(ReplicaFetchRequest, tagged, 18).topics[0].partitions[0]
    assert (part.cleaned_to, part.deletes_dropped_to, part.agreed_to) == marks
    assert read_fetch(tagged, 0, 18).parts[0].offset == 5


@given(
    marks=st.tuples(OFFSETS, OFFSETS, OFFSETS, OFFSETS),
    diverging=st.none() | st.tuples(INDEXES, OFFSETS),
)
def test_an_answer_to_a_follower_has_the_marks_of_compaction(
    marks: tuple[int, int, int, int], diverging: tuple[int, int] | None
) -> None:
    part = FetchPart(bytes(16), 0, 3, 5, 3, 0, 7)
    line = FetchLine[Stored](0, 5, 5, 0, None, (), 0, diverging, marks)

    frame = memoryview(b"".join(write_fetch_answer([part], [line], 1, 18)))[4:]  # type: ignore

    _, position = read_response_header(frame, 1, 18)
    answer = decode(ReplicaFetchResponse, frame, 18, position)
    read = answer.responses[0].partitions[0]
    found_marks = (read.cleaned_to, read.deletes_dropped_to, read.agreed_to, read.drops)
    assert found_marks == marks
    found = (read.diverging_epoch.epoch, read.diverging_epoch.end_offset)
    assert found == (diverging or (-1, -1))
    assert decode(FetchResponse, frame, 18, position).responses[0].partitions[0].high_watermark == 5
