"""Fetch (key 1), versions 4 to 18: reads whole record batches from a set of partitions.

Batches are sent as they are stored. A batch whose content contradicts its header fails in each
client; docs/running.md says how to skip it. Records of zstd are served by every version, as Kafka
does since 4.0. `__cluster_metadata` is read by brokers only (decision 29).

A request of a replica is believed only in version 18, under the present registration of a broker.
From version 11 on every replica answers, up to the high watermark that it knows, and the leader
names one in the client's rack (KIP-392). There is no `replica.selector.class`: the rules are those
of Kafka's RackAwareReplicaSelector. Replicas have fetch sessions (KIP-227). Deliberately not done:
those of clients (every request names all its partitions), down-conversion, tiered storage.
"""

import asyncio
from collections.abc import Awaitable, Sequence
from typing import TYPE_CHECKING

from headwater.core_log.broker.authorization import allows, topic_denial
from headwater.core_log.broker.connection import Reply, ResponsePart
from headwater.core_log.broker.dispatch import RequestContext, handles_raw
from headwater.core_log.broker.partition import (
    FetchedPartition,
    Partition,
    Reach,
    check_epoch,
    read_line,
)
from headwater.core_log.broker.quorum_fetch import answer_quorum_fetch, is_quorum_fetch
from headwater.core_log.broker.quotas import RequestUse
from headwater.core_log.broker.replica_fetches import answer_replica, refuse_session
from headwater.core_log.broker.replicas import find_unproved
from headwater.core_log.model.log import TopicPartition
from headwater.core_log.protocol.error_codes import ErrorCode
from headwater.core_log.protocol.fetch_frames import (
    NO_REPLICA,
    RACKS_FROM,
    FetchFrame,
    FetchLine,
    FetchPart,
    read_fetch,
    write_fetch_answer,
)
from headwater.core_log.protocol.inter_broker_messages import NO_SESSION
from headwater.core_log.protocol.messages.fetch import FetchRequest
from headwater.core_log.replication.leader import Leader, choose_read_replica
from headwater.core_log.replication.metadata import METADATA_TOPIC
from headwater.core_log.security.acls import AclOperation, ResourceType

if TYPE_CHECKING:
    from headwater.core_log.broker.broker import Broker

READ_COMMITTED = 1


@handles_raw(FetchRequest)
def handle_fetch(
    broker: "Broker",
    frame: memoryview,
    position: int,
    correlation_id: int,
    context: RequestContext,
) -> Reply | Awaitable[bytes] | Awaitable[Reply]:
    request = read_fetch(frame, position, context.api_version)
    denied: Sequence[ErrorCode] = ()
    if broker.authorizer is not None:
        if request.replica_id >= 0 and not allows(
            broker, context, AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER
        ):
            return refuse_replica(request, correlation_id, context.api_version)
        denied = list_denied(broker, context, request)
    if request.replica_id >= 0 and is_quorum_fetch(request):
        version = context.api_version
        return answer_quorum_fetch(broker, frame, position, correlation_id, version)
    if request.replica_id >= 0:
        return answer_replica(broker, frame, position, request, correlation_id, context)
    if request.session_id != NO_SESSION:
        code = ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        return refuse_session(code, correlation_id, context.api_version)
    pending = PendingFetch(broker, request, correlation_id, context.api_version, context.use)
    return pending.refuse(denied) if any(denied) else pending.start()


def list_denied(
    broker: "Broker", context: RequestContext, request: FetchFrame
) -> Sequence[ErrorCode]:
    """Returns for each part the error of who may not read there."""
    if request.replica_id >= 0:
        return ()
    topics = {part.topic for part in request.parts}
    codes = {topic: topic_denial(broker, context, AclOperation.READ, topic) for topic in topics}
    return [codes[part.topic] for part in request.parts]


def refuse_replica(request: FetchFrame, correlation_id: int, version: int) -> Reply:
    """Answers who says that it is a replica, and is no broker of the cluster."""
    if is_quorum_fetch(request):
        nothing: list[FetchedPartition] = []
        code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        chunks = write_fetch_answer((), nothing, correlation_id, version, error_code=code)
        return Reply(chunks)
    lines: list[FetchedPartition] = [
        FetchLine(ErrorCode.TOPIC_AUTHORIZATION_FAILED) for _ in request.parts
    ]
    chunks = write_fetch_answer(request.parts, lines, correlation_id, version)
    return Reply(chunks)


class PendingFetch:
    """One Fetch request: it is answered at once, or waits until enough is readable."""

    def __init__(
        self,
        broker: "Broker",
        request: FetchFrame,
        correlation_id: int,
        version: int,
        use: RequestUse | None = None,
    ) -> None:
        self.broker, self.request, self.use = broker, request, use
        if use is not None and use.fetch_bytes_max < request.bytes_max:
            few = use.fetch_bytes_max
            self.request = request._replace(bytes_max=few, bytes_min=min(few, request.bytes_min))
        self.correlation_id, self.version = correlation_id, version
        is_committed = request.isolation == READ_COMMITTED
        self.reach = Reach.STABLE if is_committed else Reach.COMMITTED
        self.find = broker.find_readable if version >= RACKS_FROM else broker.find_led
        self.parked: list[Partition] = []
        self.reply: Reply | None = None
        self.timer: asyncio.TimerHandle | None = None

    def start(self) -> Reply | Awaitable[Reply]:
        lines = self._read()
        if self.request.wait_ms_max <= 0 or self._is_enough(lines):
            beyond = () if self.broker.has_short_cuts else self._list_beyond(lines)
            return self._answer_proved(beyond) if beyond else Reply(self._answer(lines))
        self.reply = Reply(blocks=True)
        loop = asyncio.get_running_loop()
        self.timer = loop.call_later(self.request.wait_ms_max / 1000, self._give_up_waiting)
        found = (self.find(part.topic, part.partition) for part in self.request.parts)
        self.parked = [partition for partition in found if partition is not None]
        for partition in self.parked:
            partition.park(self._wake, reach=self.reach)
        return self.reply

    def refuse(self, denied: Sequence[ErrorCode]) -> Reply:
        """Answers at once, since an error is enough: with what may be read."""
        whole = self.request
        allowed = [part for part, code in zip(whole.parts, denied, strict=True) if not code]
        self.request = whole._replace(parts=allowed)
        read = iter(self._read())
        lines = [FetchLine(code) if code else next(read) for code in denied]
        self.request = whole
        return Reply(self._answer(lines))

    def _read(self) -> list[FetchedPartition]:
        """Fills the lines in order, within the request's and each partition's own limit."""
        left, lines = self.request.bytes_max, []
        is_first = True
        for part in self.request.parts:
            line = self._read_part(part, left, is_first)
            if line.record_bytes:
                is_first = False
                left -= line.record_bytes
            lines.append(line)
        return lines

    def _read_part(self, part: FetchPart, left: int, is_first: bool) -> FetchedPartition:
        partition = self.find(part.topic, part.partition)
        if partition is None:
            return FetchLine(self.broker.why_not_led(part.topic, part.partition))
        if partition.topic == METADATA_TOPIC and self.broker.authorizer is None:
            return FetchLine(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        if self.request.rack and isinstance(partition.leader, Leader):
            line = name_read_replica(self.broker, partition, part, self.request.rack)
            if line is not None:
                return line
        return read_line(
            partition,
            part,
            reach=self.reach,
            bytes_max=max(0, min(left, part.bytes_max)),
            at_least_one=is_first,
        )

    def _list_beyond(self, lines: list[FetchedPartition]) -> Sequence[TopicPartition]:
        """Returns the partitions whose log ends before the offset. A leader that was replaced may
        not know more, and clients that are told so begin anew."""
        out_of_range = ErrorCode.OFFSET_OUT_OF_RANGE
        return [
            TopicPartition(partition.topic, partition.index)
            for part, line in zip(self.request.parts, lines, strict=True)
            if line.error_code == out_of_range
            and (partition := self.broker.find_led(part.topic, part.partition)) is not None
            and part.offset > partition.log.end_offset
        ]

    async def _answer_proved(self, beyond: Sequence[TopicPartition]) -> Reply:
        unproved = await find_unproved(self.broker, beyond)
        lines = self._read()
        for place, (part, line) in enumerate(zip(self.request.parts, lines, strict=True)):
            partition = self.broker.find_led(part.topic, part.partition)
            is_doubtful = partition is not None and (partition.topic, partition.index) in unproved
            if is_doubtful and line.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                lines[place] = FetchLine(ErrorCode.OFFSET_NOT_AVAILABLE)
        return Reply(self._answer(lines))

    def _is_enough(self, lines: list[FetchedPartition]) -> bool:
        size = 0
        for line in lines:
            if line.error_code or line.diverging is not None or line.read_replica != NO_REPLICA:
                return True
            size += line.record_bytes
        return size >= self.request.bytes_min or not lines or self.broker.is_stopping

    def _answer(self, lines: list[FetchedPartition]) -> Sequence[ResponsePart]:
        chunks = write_fetch_answer(self.request.parts, lines, self.correlation_id, self.version)
        if self.use is None:
            return chunks
        size = sum(len(each) if isinstance(each, bytes) else each.size for each in chunks)
        wait_ms, may_have = self.use.on_fetched(size)
        if not wait_ms:
            return chunks
        parts, told = (self.request.parts, lines) if may_have else ((), [])
        return write_fetch_answer(parts, told, self.correlation_id, self.version, wait_ms=wait_ms)

    def _wake(self) -> None:
        assert self.reply is not None, "only a parked fetch is woken"
        if self.reply.is_abandoned:
            self._leave()
            return
        lines = self._read()
        if self._is_enough(lines):
            self._finish(lines)

    def _give_up_waiting(self) -> None:
        self._finish(self._read())

    def _finish(self, lines: list[FetchedPartition]) -> None:
        self._leave()
        assert self.reply is not None, "only a parked fetch is finished later"
        if not self.reply.is_abandoned:
            self.reply.fulfil(self._answer(lines))

    def _leave(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
        for partition in self.parked:
            partition.unpark(self._wake)
        self.parked.clear()


def name_read_replica(
    broker: "Broker", partition: Partition, part: FetchPart, rack: str
) -> FetchedPartition | None:
    """Returns a line without records that sends the client to a replica in its rack; None if it
    should read here."""
    leader = partition.leader
    assert isinstance(leader, Leader), "only a leader knows how far its followers are"
    chosen = choose_read_replica(leader, rack=rack, racks=broker.racks, offset=part.offset)
    if chosen is None or check_epoch(partition, part.leader_epoch) is not ErrorCode.NONE:
        return None
    marks = (partition.high_watermark, partition.last_stable_offset, partition.log.start_offset)
    return FetchLine(0, *marks, read_replica=chosen)
