"""Consumer groups for administrators: list, describe and change them."""

from collections.abc import Iterable
from dataclasses import dataclass

from headwater.core_log.client.cluster import Cluster
from headwater.core_log.client.coordinators import Coordinates, Coordinators
from headwater.core_log.client.retry_policy import check
from headwater.core_log.foundation.errors import DecodeError, LogRejected
from headwater.core_log.model.log import Offsets, TopicPartition
from headwater.core_log.protocol.message import decode_record
from headwater.core_log.protocol.messages.consumer_protocol import ConsumerProtocolAssignment
from headwater.core_log.protocol.messages.delete_groups import (
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)
from headwater.core_log.protocol.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from headwater.core_log.protocol.messages.list_groups import ListGroupsRequest
from headwater.core_log.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from headwater.core_log.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from headwater.core_log.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
)

WITHOUT_NOT_FOUND = 5
"""DescribeGroups: later versions answer an unknown group with an error instead of a state."""
DEAD = "Dead"
"""The coordinator's state of an unknown group."""


@dataclass(frozen=True, slots=True)
class GroupSummary:
    name: str
    state: str
    protocol: str


@dataclass(frozen=True, slots=True)
class GroupMember:
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    partitions: tuple[TopicPartition, ...]
    metadata: bytes = b""
    """As the member wrote it; empty while the group rebalances."""
    assignment: bytes = b""


@dataclass(frozen=True, slots=True)
class GroupDescription:
    name: str
    state: str
    members: tuple[GroupMember, ...]


class GroupAdmin:
    """Administration of groups; every answer comes from the coordinators, without a cache."""

    def __init__(self, cluster: Cluster, coordinators: Coordinators) -> None:
        self._cluster, self._coordinators = cluster, coordinators

    async def all(self) -> list[GroupSummary]:
        """Returns all groups; each broker knows those that it coordinates."""

        async def attempt() -> list[GroupSummary]:
            found: list[GroupSummary] = []
            for node in await self._cluster.nodes():
                response = await node.ask(ListGroupsRequest())
                check(response.error_code)
                found += [
                    GroupSummary(group.group_id, group.group_state, group.protocol_type)
                    for group in response.groups
                ]
            return sorted(found, key=lambda group: group.name)

        return await self._cluster.persist(attempt)

    async def describe(self, name: str) -> GroupDescription:
        def codes(response: DescribeGroupsResponse) -> list[int]:
            return [group.error_code for group in response.groups]

        response = await self._coordinators.ask(
            Coordinates.GROUP,
            name,
            DescribeGroupsRequest(groups=[name]),
            codes=codes,
            version_max=WITHOUT_NOT_FOUND,
        )
        group = response.groups[0]
        if group.group_state == DEAD:
            raise _missing(name)
        return _describe(group)

    async def reset(self, name: str, offsets: Offsets) -> None:
        """Sets offsets; refused while the group has members, because they would not notice."""
        await commit_offsets(self._coordinators, name, offsets)

    async def forget(self, name: str, partitions: Iterable[TopicPartition]) -> None:
        """Deletes the group's committed offsets of these partitions."""
        topics: dict[str, list[OffsetDeleteRequestPartition]] = {}
        for topic, index in partitions:
            part = OffsetDeleteRequestPartition(partition_index=index)
            topics.setdefault(topic, []).append(part)
        request = OffsetDeleteRequest(
            group_id=name,
            topics=[OffsetDeleteRequestTopic(name=t, partitions=p) for t, p in topics.items()],
        )

        def codes(response: OffsetDeleteResponse) -> list[int]:
            parts = [part.error_code for topic in response.topics for part in topic.partitions]
            return [response.error_code, *parts]

        await self._coordinators.ask(Coordinates.GROUP, name, request, codes=codes)

    async def delete(self, name: str) -> None:
        def codes(response: DeleteGroupsResponse) -> list[int]:
            return [result.error_code for result in response.results]

        request = DeleteGroupsRequest(groups_names=[name])
        await self._coordinators.ask(Coordinates.GROUP, name, request, codes=codes)


def _missing(name: str) -> LogRejected:
    return LogRejected("group does not exist", hint="headwater groups ls", group=name)


def _describe(group: DescribedGroup) -> GroupDescription:
    members = tuple(_member(member, group.protocol_type) for member in group.members)
    return GroupDescription(group.group_id, group.group_state, members)


def _member(member: DescribedGroupMember, protocol_type: str) -> GroupMember:
    partitions: tuple[TopicPartition, ...] = ()
    if protocol_type == "consumer":
        partitions = _parse_assignment(member.member_assignment)
    return GroupMember(
        member.member_id,
        member.group_instance_id,
        member.client_id,
        member.client_host,
        partitions,
        member.member_metadata,
        member.member_assignment,
    )


def _parse_assignment(assignment: bytes) -> tuple[TopicPartition, ...]:
    """Returns the assignment; empty while the group rebalances. Members write these bytes, so they
    may be invalid."""
    try:
        response = decode_record(ConsumerProtocolAssignment, assignment)
    except DecodeError:
        return ()
    return tuple(
        TopicPartition(topic.topic, index)
        for topic in response.assigned_partitions
        for index in topic.partitions
    )


BY_NAME = 9  # OffsetCommit: later versions name topics by id
ONE_GROUP = 7  # OffsetFetch: the last version for one group by name


async def commit_offsets(coordinators: Coordinators, group: str, offsets: Offsets) -> None:
    """Commits offsets from outside the group: refused while the group has members."""
    topics: dict[str, list[OffsetCommitRequestPartition]] = {}
    for (topic, index), offset in offsets.items():
        part = OffsetCommitRequestPartition(partition_index=index, committed_offset=offset)
        topics.setdefault(topic, []).append(part)
    request = OffsetCommitRequest(
        group_id=group,
        topics=[OffsetCommitRequestTopic(name=name, partitions=p) for name, p in topics.items()],
    )

    def codes(response: OffsetCommitResponse) -> list[int]:
        return [part.error_code for topic in response.topics for part in topic.partitions]

    await coordinators.ask(Coordinates.GROUP, group, request, codes=codes, version_max=BY_NAME)


async def committed_offsets(coordinators: Coordinators, group: str) -> Offsets:
    """Returns the offsets; waits for transactions that are committing offsets of this group."""

    def codes(response: OffsetFetchResponse) -> list[int]:
        parts = [part.error_code for topic in response.topics for part in topic.partitions]
        return [response.error_code, *parts]

    response = await coordinators.ask(
        Coordinates.GROUP,
        group,
        OffsetFetchRequest(group_id=group, topics=None, require_stable=True),
        codes=codes,
        version_max=ONE_GROUP,
    )
    return {
        TopicPartition(topic.name, part.partition_index): part.committed_offset
        for topic in response.topics
        for part in topic.partitions
        if part.committed_offset >= 0
    }
