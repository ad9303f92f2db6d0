"""A leader of the metadata quorum answers a voter that has moved as Apache Kafka's does."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from headwater.core_log.protocol.error_codes import ErrorCode
from headwater.core_log.protocol.messages.describe_quorum import (
    DescribeQuorumPartition,
    DescribeQuorumRequest,
    DescribeQuorumTopic,
)
from headwater.core_log.protocol.messages.update_raft_voter import (
    KRaftVersionRange,
    UpdateRaftVoterRequest,
    VoterListener,
)
from headwater.core_log.replication.metadata import METADATA_TOPIC
from scripts.free_port import free_ports
from tests.compat.test_administration_beside_kafka import Node
from tests.contract.apache_kafka import PROPERTIES, running_node
from tests.core_log.broker.in_memory import ask, started
from tests.fakes import MemoryFiles

pytestmark = [pytest.mark.kafka, pytest.mark.compat]

Ask = Callable[[Any], Awaitable[Any]]
NOBODY, NO_DIRECTORY = -1, UUID(int=0)


def versions(lowest: int, highest: int) -> dict[str, Any]:
    span = KRaftVersionRange(min_supported_version=lowest, max_supported_version=highest)
    return {"k_raft_version_feature": span}


CASES: tuple[dict[str, Any], ...] = (
    {"cluster_id": "another"},
    {"cluster_id": None, "listeners": ()},
    {"current_leader_epoch": 0},
    {"current_leader_epoch": NOBODY},
    {"current_leader_epoch": 1_000},
    {"voter_id": NOBODY},
    {"voter_id": 9},
    {"voter_directory_id": NO_DIRECTORY},
    {"voter_directory_id": UUID(int=9)},
    {"listeners": ()},
    {"listeners": (VoterListener(name="ANOTHER", host="h", port=1),)},
    versions(1, 0),
    versions(-1, 1),
    versions(0, 0),
    versions(2, 3),
    {"voter_id": 9, "listeners": ()},
    {"voter_id": 9, **versions(2, 3)},
)
"""None that a leader takes: Kafka's only voter ends if it hears of itself."""


async def answers(ask: Ask, listener: str) -> list[tuple[str, bool]]:
    """The code of each case, and whether the answer names the leader."""
    partition = DescribeQuorumPartition(partition_index=0)
    topic = DescribeQuorumTopic(topic_name=METADATA_TOPIC, partitions=(partition,))
    known = (await ask(DescribeQuorumRequest(topics=(topic,)))).topics[0].partitions[0]
    [voter] = known.current_voters
    place = VoterListener(name=listener, host="moved.example", port=9)
    base = UpdateRaftVoterRequest(
        cluster_id=None,
        current_leader_epoch=known.leader_epoch,
        voter_id=voter.replica_id,
        voter_directory_id=voter.replica_directory_id,
        listeners=(place,),
        **versions(0, 1),
    )
    found = []
    for case in CASES:
        said = await ask(replace(base, **case))
        leader = (said.current_leader.leader_id, said.current_leader.leader_epoch)
        found.append(
            (ErrorCode(said.error_code).name, leader == (known.leader_id, known.leader_epoch))
        )
    return found


async def test_a_voter_that_moved_is_answered_as_by_kafka(tmp_path: Path) -> None:
    broker, controller = free_ports(2)
    text = PROPERTIES.format(broker=broker, controller=controller, directory=tmp_path)
    ours = await started(MemoryFiles())
    with (
        running_node(tmp_path, text, port=broker),
        closing(Node(f"127.0.0.1:{controller}")) as node,
    ):
        theirs = await answers(lambda each: asyncio.to_thread(node.ask, each), "CONTROLLER")
    own = await answers(lambda each: ask(ours, each), "PLAINTEXT")

    assert own == theirs
    assert {code for code, _ in own} >= {"INVALID_REQUEST", "VOTER_NOT_FOUND"}
    await ours.close()
