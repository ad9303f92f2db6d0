"""OffsetFetch (key 9), versions 1 to 10: how far consumer groups have read.

Version 2: all partitions, and one error for the whole request. 7: waits for transactions that are
committing offsets (`require_stable`). 8: several groups. 10: topics by id. Deliberately not done:
the member and its epoch (KIP-848).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from headwater.core_log.broker.authorization import allows, denial
from headwater.core_log.broker.dispatch import RequestContext, handles
from headwater.core_log.broker.offset_requests import NamedTopic, find_allowed
from headwater.core_log.groups.offsets import NO_TOPIC_ID, CommittedOffset
from headwater.core_log.model.log import TopicPartition, indexes_by_topic
from headwater.core_log.protocol.error_codes import ErrorCode
from headwater.core_log.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from headwater.core_log.security.acls import AclOperation, ResourceType

if TYPE_CHECKING:
    from headwater.core_log.broker.broker import Broker

ERROR_OF_ALL_FROM = 2
SEVERAL_GROUPS_FROM = 8
TOPIC_IDS_FROM = 10
DESCRIBE = AclOperation.DESCRIBE

RequestedTopics = Sequence[tuple[NamedTopic, Sequence[int]]]


@handles(OffsetFetchRequest)
async def handle_offset_fetch(
    broker: "Broker", request: OffsetFetchRequest, context: RequestContext
) -> OffsetFetchResponse:
    if context.api_version < SEVERAL_GROUPS_FROM:
        return await _fetch_for_one(broker, request, context)
    by_id = context.api_version >= TOPIC_IDS_FROM
    groups = []
    for group in request.groups:
        wanted = None
        if group.topics is not None:
            wanted = [
                (
                    find_allowed(broker, context, DESCRIBE, "", each.topic_id, by_id=True)
                    if by_id
                    else _name(broker, context, each.name),
                    each.partition_indexes,
                )
                for each in group.topics
            ]
        reader = await _reader(broker, context, group.group_id, request)
        groups.append(reader.answer(wanted, by_id=by_id))
    return OffsetFetchResponse(groups=tuple(groups))


async def _reader(
    broker: "Broker", context: RequestContext, group_id: str, request: OffsetFetchRequest
) -> "GroupReader":
    denied = denial(broker, context, DESCRIBE, ResourceType.GROUP, group_id)
    error = denied or await broker.groups.confirm(group_id)
    return GroupReader(broker, context, group_id, error, is_stable=request.require_stable)


def _name(broker: "Broker", context: RequestContext, name: str) -> NamedTopic:
    """Returns the topic, which need not exist any more."""
    return NamedTopic(
        name, NO_TOPIC_ID, denial(broker, context, DESCRIBE, ResourceType.TOPIC, name)
    )


async def _fetch_for_one(
    broker: "Broker", request: OffsetFetchRequest, context: RequestContext
) -> OffsetFetchResponse:
    version = context.api_version
    wanted = None
    if request.topics is not None:
        wanted = [
            (_name(broker, context, each.name), each.partition_indexes) for each in request.topics
        ]
    reader = await _reader(broker, context, request.group_id, request)
    answer = reader.answer(wanted, by_id=False)
    refused = ErrorCode(answer.error_code) if version < ERROR_OF_ALL_FROM else ErrorCode.NONE
    if refused:
        answer = reader.refuse(wanted or (), refused)
    topics = [
        OffsetFetchResponseTopic(
            name=topic.name,
            partitions=tuple(
                OffsetFetchResponsePartition(
                    partition_index=each.partition_index,
                    committed_offset=each.committed_offset,
                    committed_leader_epoch=each.committed_leader_epoch,
                    metadata=each.metadata,
                    error_code=each.error_code,
                )
                for each in topic.partitions
            ),
        )
        for topic in answer.topics
    ]
    return OffsetFetchResponse(topics=tuple(topics), error_code=answer.error_code)


class GroupReader:
    """Answers for one group."""

    def __init__(
        self,
        broker: "Broker",
        context: RequestContext,
        group_id: str,
        error: ErrorCode,
        *,
        is_stable: bool,
    ) -> None:
        """`error`: why this broker cannot answer for the group."""
        self._broker, self._group_id, self._is_stable = broker, group_id, is_stable
        self._context, self._error = context, error

    def answer(self, wanted: RequestedTopics | None, *, by_id: bool) -> OffsetFetchResponseGroup:
        if self._error is not ErrorCode.NONE:
            return OffsetFetchResponseGroup(group_id=self._group_id, error_code=self._error)
        offsets = self._broker.groups.offsets_of(self._group_id)
        if wanted is None:
            wanted = list(self._all(offsets, by_id=by_id))
        topics = [
            OffsetFetchResponseTopics(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=tuple(self._partitions(topic, indexes, offsets)),
            )
            for topic, indexes in wanted
        ]
        return OffsetFetchResponseGroup(group_id=self._group_id, topics=tuple(topics))

    def refuse(self, wanted: RequestedTopics, error: ErrorCode) -> OffsetFetchResponseGroup:
        """Returns the error for each partition, for clients that know no error of the whole
        request."""
        topics = [
            OffsetFetchResponseTopics(
                name=topic.name, partitions=tuple(_nothing(index, error) for index in indexes)
            )
            for topic, indexes in wanted
        ]
        return OffsetFetchResponseGroup(group_id=self._group_id, topics=tuple(topics))

    def _all(
        self, offsets: Mapping[TopicPartition, CommittedOffset], *, by_id: bool
    ) -> Iterator[tuple[NamedTopic, Sequence[int]]]:
        for name, indexes in indexes_by_topic(sorted(offsets)).items():
            kind = ResourceType.TOPIC
            if not allows(self._broker, self._context, DESCRIBE, kind, name):
                continue
            topic = self._broker.image.topic(name) if by_id else None
            if topic is not None or not by_id:
                topic_id = NO_TOPIC_ID if topic is None else topic.topic_id
                yield NamedTopic(name, topic_id, ErrorCode.NONE), indexes

    def _partitions(
        self,
        topic: NamedTopic,
        indexes: Iterable[int],
        offsets: Mapping[TopicPartition, CommittedOffset],
    ) -> Iterator[OffsetFetchResponsePartitions]:
        for index in indexes:
            partition = TopicPartition(topic.name, index)
            committed = offsets.get(partition)
            if topic.error is not ErrorCode.NONE:
                yield _nothing(index, topic.error)
            elif self._is_stable and self._broker.groups.is_unstable(self._group_id, partition):
                yield _nothing(index, ErrorCode.UNSTABLE_OFFSET_COMMIT)
            elif committed is None or _is_of_predecessor(committed, topic):
                yield _nothing(index, ErrorCode.NONE)
            else:
                yield OffsetFetchResponsePartitions(
                    partition_index=index,
                    committed_offset=committed.offset,
                    committed_leader_epoch=committed.leader_epoch,
                    metadata=committed.metadata,
                )


def _is_of_predecessor(committed: CommittedOffset, topic: NamedTopic) -> bool:
    """Whether the offset was committed for a deleted topic of the same name."""
    ids = {committed.topic_id, topic.topic_id}
    return NO_TOPIC_ID not in ids and len(ids) > 1


def _nothing(index: int, error: ErrorCode) -> OffsetFetchResponsePartitions:
    return OffsetFetchResponsePartitions(
        partition_index=index,
        committed_offset=-1,
        committed_leader_epoch=-1,
        metadata="",
        error_code=error,
    )
