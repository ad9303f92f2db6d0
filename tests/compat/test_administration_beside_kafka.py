"""Sent the same administrative requests, Apache Kafka and this broker answer with one code."""

import dataclasses
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from struct import Struct
from typing import Any
from uuid import UUID

import pytest

from headwater.core_log.model.replica_placement import LEADER_RATE
from headwater.core_log.protocol import frames, message
from headwater.core_log.protocol.error_codes import ErrorCode
from headwater.core_log.protocol.messages import alter_configs as replacing
from headwater.core_log.protocol.messages import incremental_alter_configs as changing
from headwater.core_log.protocol.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from headwater.core_log.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from headwater.core_log.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from headwater.core_log.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from headwater.core_log.protocol.messages.describe_cluster import DescribeClusterRequest
from headwater.core_log.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from headwater.core_log.protocol.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from headwater.core_log.replication.topic_config import KEYS, MIN_IN_SYNC
from tests.contract.apache_kafka import run_apache_kafka
from tests.core_log.broker.in_memory import ask, started
from tests.fakes import MemoryFiles

TOPIC, BROKER = 2, 4
LENGTH = Struct(">i")


def create(
    name: str,
    partitions: int = 1,
    factor: int = 1,
    config: Mapping[str, str | None] | None = None,
    replicas: tuple[tuple[int, list[int]], ...] = (),
    *,
    validate_only: bool = False,
) -> CreateTopicsRequest:
    topic = CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=factor,
        assignments=[
            CreatableReplicaAssignment(partition_index=i, broker_ids=b) for i, b in replicas
        ],
        configs=[CreatableTopicConfig(name=k, value=v) for k, v in (config or {}).items()],
    )
    return CreateTopicsRequest(topics=[topic], validate_only=validate_only)


def by_hand(*replicas: tuple[int, list[int]]) -> CreateTopicsRequest:
    return create("p", -1, -1, replicas=replicas)


def several(*requests: CreateTopicsRequest) -> CreateTopicsRequest:
    return CreateTopicsRequest(topics=[topic for each in requests for topic in each.topics])


def setting(name: str, value: str) -> CreateTopicsRequest:
    return create("p", config={name: value}, validate_only=True)


def more(
    name: str, count: int, *replicas: list[int], validate_only: bool = False
) -> CreatePartitionsRequest:
    assignments = [CreatePartitionsAssignment(broker_ids=each) for each in replicas] or None
    topic = CreatePartitionsTopic(name=name, count=count, assignments=assignments)
    return CreatePartitionsRequest(topics=[topic], timeout_ms=10_000, validate_only=validate_only)


def alter(name: str, *changes: tuple[str, int, str | None], kind: int = TOPIC) -> Any:
    configs = [
        changing.AlterableConfig(name=key, config_operation=operation, value=value)
        for key, operation, value in changes
    ]
    resource = changing.AlterConfigsResource(
        resource_type=kind, resource_name=name, configs=configs
    )
    return changing.IncrementalAlterConfigsRequest(resources=[resource])


def replace(name: str, *values: tuple[str, str | None], kind: int = TOPIC) -> Any:
    configs = [replacing.AlterableConfig(name=key, value=value) for key, value in values]
    resource = replacing.AlterConfigsResource(
        resource_type=kind, resource_name=name, configs=configs
    )
    return replacing.AlterConfigsRequest(resources=[resource])


def describe(*resources: tuple[int, str]) -> DescribeConfigsRequest:
    return DescribeConfigsRequest(
        resources=[
            DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=None)
            for kind, name in resources
        ]
    )


def delete_records(topic: str, index: int, offset: int) -> DeleteRecordsRequest:
    partitions = [DeleteRecordsPartition(partition_index=index, offset=offset)]
    topics = [DeleteRecordsTopic(name=topic, partitions=partitions)]
    return DeleteRecordsRequest(topics=topics, timeout_ms=5_000)


def page(
    *names: str, limit: int = 2000, cursor: Cursor | None = None
) -> DescribeTopicPartitionsRequest:
    return DescribeTopicPartitionsRequest(
        topics=[TopicRequest(name=name) for name in names],
        response_partition_limit=limit,
        cursor=cursor,
    )


def delete(*topics: DeleteTopicState) -> DeleteTopicsRequest:
    return DeleteTopicsRequest(topics=topics, timeout_ms=5_000)


def named(name: str) -> DeleteTopicState:
    return DeleteTopicState(name=name)


SEGMENT_MS = ("segment.ms", 0, "5000")
REQUESTS: tuple[Any, ...] = (
    create("a", 2),
    create("a"),
    several(*(create(name) for name in ("", ".", "..", "x" * 250, "a/b", "ä", "a\0b"))),
    create("x.y"),
    create("x_y"),
    several(create("d"), create("d"), create("e")),
    create("__cluster_metadata"),
    create("p", 0),
    create("p", -2),
    create("p", 1, 0),
    create("p", 1, -2),
    create("p", 1, 3),
    create("p", 10_001),
    create("p", 1, -1, replicas=((0, [1]),)),
    create("p", -1, 1, replicas=((0, [1]),)),
    by_hand((1, [1])),
    by_hand((0, [1]), (0, [1])),
    by_hand((0, [])),
    by_hand((0, [77])),
    by_hand((0, [1, 1])),
    create("p", config={"no.such": "1"}),
    create("p", config={"retention.ms": None}),
    create("v", validate_only=True),
    create("v", 0, validate_only=True),
    setting("retention.ms", "soon"),
    setting("retention.ms", "-2"),
    setting("retention.ms", " 5 "),
    setting("retention.ms", "+5"),
    setting("retention.ms", "1.0"),
    setting("segment.bytes", "13"),
    setting("segment.ms", "0"),
    setting("segment.jitter.ms", "-1"),
    setting("segment.index.bytes", "3"),
    setting("index.interval.bytes", "-1"),
    setting("cleanup.policy", "shred"),
    setting("cleanup.policy", ""),
    setting("cleanup.policy", " compact , delete "),
    setting("message.timestamp.type", "createtime"),
    setting("message.timestamp.after.max.ms", "-1"),
    setting("min.cleanable.dirty.ratio", "1.1"),
    setting("min.insync.replicas", "0"),
    setting("unclean.leader.election.enable", "yes"),
    *(setting("compression.type", each) for each in ("gzip", "uncompressed", "none", "GZIP")),
    setting("flush.messages", "0"),
    setting("flush.ms", "-1"),
    setting("delete.retention.ms", "-1"),
    setting("file.delete.delay.ms", "-1"),
    setting("max.message.bytes", "-1"),
    setting("max.compaction.lag.ms", "0"),
    create("p", config={"min.compaction.lag.ms": "10", "max.compaction.lag.ms": "5"}),
    describe((TOPIC, "missing"), (TOPIC, ".."), (BROKER, "99"), (BROKER, "one"), (BROKER, "")),
    more("a", 3),
    more("a", 3),
    more("a", 1),
    more("a", 0),
    more("a", -1),
    more("missing", 3),
    more("a", 5, [1]),
    more("a", 4, [77]),
    more("a", 4, [1, 1]),
    CreatePartitionsRequest(topics=[*more("a", 5).topics, *more("a", 6).topics], timeout_ms=10_000),
    alter("a", SEGMENT_MS),
    alter("missing", SEGMENT_MS),
    alter("..", SEGMENT_MS),
    alter("", SEGMENT_MS),
    alter("a", ("segment.ms", 0, "0")),
    alter("a", SEGMENT_MS, SEGMENT_MS),
    alter("a", ("segment.ms", 0, None)),
    alter("a", ("segment.ms", 2, "1")),
    alter("a", ("cleanup.policy", 2, "compact")),
    alter("a", ("cleanup.policy", 3, "delete")),
    alter("a", ("cleanup.policy", 3, "compact")),
    alter("a", ("no.such", 0, "1")),
    alter("a", ("no.such", 1, None)),
    alter("99", ("log.retention.ms", 0, "1"), kind=BROKER),
    alter("x", SEGMENT_MS, kind=0),
    alter("x", SEGMENT_MS, kind=99),
    changing.IncrementalAlterConfigsRequest(
        resources=[*alter("a").resources, *alter("a").resources]
    ),
    replace("a", ("retention.ms", "7000")),
    replace("a", ("retention.ms", None)),
    replace("missing", ("retention.ms", "1")),
    replace("a", ("retention.ms", "1"), ("retention.ms", "2")),
    replace("a", ("no.such", "2")),
    replace("x", ("a", "b"), kind=99),
    alter("a", ("cleanup.policy", 2, "")),
    *(
        alter(broker, *changes, kind=BROKER)
        for broker in ("1", "")
        for changes in (
            [(LEADER_RATE, 0, "5")],
            [(LEADER_RATE, 0, "soon")],
            [(LEADER_RATE, 0, None)],
            [(LEADER_RATE, 2, None)],
            [(LEADER_RATE, 3, "5")],
            [(LEADER_RATE, 1, None)],
            [(MIN_IN_SYNC, 0, "1")],
            [(MIN_IN_SYNC, 0, "0")],
            [(MIN_IN_SYNC, 0, None)],
            [(MIN_IN_SYNC, 1, None)],
            [(MIN_IN_SYNC, 2, None)],
            [(MIN_IN_SYNC, 2, "1")],
            [("log.retention.ms", 0, "soon")],
            [("log.retention.ms", 1, None)],
            [("node.id", 0, "5")],
            [("no.such", 1, None)],
            [(LEADER_RATE, 0, "5"), (LEADER_RATE, 0, "5")],
        )
    ),
    *(
        replace(broker, each, kind=BROKER)
        for broker in ("1", "")
        for each in (
            (LEADER_RATE, "soon"),
            (LEADER_RATE, None),
            (MIN_IN_SYNC, "1"),
            (MIN_IN_SYNC, "x"),
            (MIN_IN_SYNC, None),
            ("log.retention.ms", "soon"),
            ("node.id", "5"),
            ("no.such", None),
        )
    ),
    replace("", kind=BROKER),
    DescribeClusterRequest(),
    DescribeClusterRequest(endpoint_type=2),
    DescribeClusterRequest(endpoint_type=7),
    delete_records("e", 0, 0),
    delete_records("e", 0, -1),
    delete_records("e", 0, 5),
    delete_records("e", 0, -2),
    delete_records("e", 9, 0),
    delete_records("missing", 0, 0),
    create("compacted", config={"cleanup.policy": "compact"}),
    delete_records("compacted", 0, 0),
    page("a", "missing", "..", "e"),
    page("a", "e", limit=1),
    page("a", "e", limit=3),
    page("a", "e", limit=0),
    page("a", "e", limit=2, cursor=Cursor(topic_name="a", partition_index=2)),
    page("a", limit=2, cursor=Cursor(topic_name="z", partition_index=2)),
    page("a", limit=2, cursor=Cursor(topic_name="a", partition_index=-1)),
    page("a", "e", limit=2, cursor=Cursor(topic_name="a", partition_index=50)),
    delete(named("missing")),
    delete(DeleteTopicState(topic_id=UUID(int=77))),
    delete(DeleteTopicState()),
    delete(DeleteTopicState(name="a", topic_id=UUID(int=3))),
    delete(named("a"), named("a")),
    delete(named("..")),
    delete(*map(named, ("a", "x.y", "e", "compacted", "v"))),
)

DELIBERATE: tuple[tuple[Any, str], ...] = (
    (setting("segment.bytes", "1000"), "small segments make small tests; Kafka asks for 1 MiB"),
    (setting("preallocate", "true"), "whole segments are never preallocated here"),
    (setting("min.cleanable.dirty.ratio", "NaN"), "not a ratio"),
    (setting("retention.bytes", "-2"), "only -1 means without limit here"),
    (several(create("z.y"), create("z_y")), "Kafka overlooks names that collide in one request"),
    (more("d.e", 30_000, validate_only=True), "said in words, where Kafka has no code for it"),
    *(
        (alter(broker, (name, 0, "100"), kind=BROKER), "settings of brokers are read at a start")
        for broker in ("1", "")
        for name in ("log.retention.ms", "no.such")
    ),
    (alter("d.e", ("segment.ms", 9, "1")), "an unknown operation is the client's mistake"),
)
"""What is answered otherwise, and why; each must stay otherwise, or leave this list."""


class Node:
    """Apache Kafka behind one socket."""

    def __init__(self, address: str) -> None:
        host, port = address.rsplit(":", 1)
        self.socket = socket.create_connection((host, int(port)), timeout=30)

    def ask(self, request: Any) -> Any:
        version = request.versions[1]
        self.socket.sendall(frames.encode_request(request, version, 1, "compat"))
        frame = memoryview(self._read(LENGTH.unpack(self._read(LENGTH.size))[0]))
        _, position = frames.read_response_header(frame, request.api_key, version)
        kind: type[Any] = message.response_type(type(request))
        return message.decode(kind, frame, version, position)

    def ask_until_known(self, description: DescribeConfigsRequest) -> Any:
        """A node learns of a new topic a moment after it was made."""
        while (found := self.ask(description)).results[0].error_code:
            time.sleep(0.05)
        return found

    def close(self) -> None:
        self.socket.close()

    def _read(self, size: int) -> bytes:
        found = b""
        while len(found) < size:
            part = self.socket.recv(size - len(found))
            assert part, "Apache Kafka keeps the connection"
            found += part
        return found


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    directory = tmp_path_factory.mktemp("kafka")
    with run_apache_kafka(directory) as address, closing(Node(address)) as node:
        yield node


def gist(value: Any) -> list[object]:
    """The error codes of an answer, whose they are, and what it counts; order is free."""
    found: list[object] = []

    def walk(part: Any, place: tuple[object, ...]) -> None:
        if dataclasses.is_dataclass(part):
            for field in dataclasses.fields(part):
                inner = getattr(part, field.name)
                if field.name == "error_code":
                    found.append((*place, ErrorCode(inner).name))
                elif field.name in COUNTED:
                    found.append((*place, field.name, str(inner)))
                walk(inner, place)
        elif isinstance(part, list | tuple):
            for each in part:
                name = getattr(each, "name", None) or getattr(each, "resource_name", None)
                walk(each, (*place, name or ""))

    walk(value, ())
    return sorted(found, key=str)


COUNTED = {"low_watermark", "next_cursor", "partition_index", "num_partitions"}


@pytest.mark.kafka
async def test_kafka_and_headwater_answer_alike(node: Node) -> None:
    broker = await started(MemoryFiles())

    answers = [
        (request, gist(node.ask(request)), gist(await ask(broker, request))) for request in REQUESTS
    ]

    assert [each for each in answers if each[1] != each[2]] == []
    await broker.close()


@pytest.mark.kafka
async def test_differences_are_deliberate(node: Node) -> None:
    broker = await started(MemoryFiles())
    await ask(broker, create("d.e"))
    node.ask(create("d.e"))
    node.ask_until_known(describe((TOPIC, "d.e")))

    alike = [
        reason
        for request, reason in DELIBERATE
        if gist(node.ask(request)) == gist(await ask(broker, request))
    ]

    assert alike == []
    node.ask(delete(*map(named, ("d.e", "z.y", "z_y"))))
    for each in ("1", ""):  # Apache Kafka has taken it
        node.ask(alter(each, ("log.retention.ms", 1, None), kind=BROKER))
    await broker.close()


@pytest.mark.kafka
async def test_every_key_served_has_kafkas_type_and_default(node: Node) -> None:
    broker = await started(MemoryFiles())
    node.ask(create("defaults"))
    await ask(broker, create("defaults"))
    request = describe((TOPIC, "defaults"))
    answers = [node.ask_until_known(request), await ask(broker, request)]

    kafkas, ours = (
        {each.name: (each.value, each.config_type) for each in answer.results[0].configs}
        for answer in answers
    )

    assert ours == {name: kafkas[name] for name in KEYS}
    node.ask(delete(named("defaults")))
    await broker.close()
