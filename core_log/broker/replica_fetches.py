"""Fetches of followers, which read uncommitted records and say by them what they have on disk."""

import asyncio
from collections.abc import Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from headwater.core_log.broker.connection import Peer, Reply, ResponsePart
from headwater.core_log.broker.dispatch import RequestContext
from headwater.core_log.broker.partition import (
    FetchedPartition,
    Partition,
    Reach,
    Wake,
    read_line,
    refuse_stranger,
)
from headwater.core_log.protocol.fetch_frames import (
    FetchFrame,
    FetchLine,
    FetchPart,
    write_fetch_answer,
)
from headwater.core_log.protocol.message import decode
from headwater.core_log.protocol.replica_fetch import ReplicaFetchPartition, ReplicaFetchRequest

if TYPE_CHECKING:
    from headwater.core_log.broker.broker import Broker

VERSION = ReplicaFetchRequest.versions[0]
MARKS_WAIT_MS_MAX = 500
"""How long a high watermark waits for records to travel with, where nobody reads at the
follower."""


def answer_replica(
    broker: "Broker",
    frame: memoryview,
    position: int,
    request: FetchFrame,
    correlation_id: int,
    context: RequestContext,
) -> Reply:
    """Answers who says that it is a replica. It is believed only under the present registration of
    a broker of this cluster."""
    version, peer = context.api_version, context.peer
    assert peer is not None, "a follower has a connection"
    if version != VERSION or not broker.is_registered(request.replica_id, request.replica_epoch):
        lines: list[FetchedPartition] = [_refused(broker, part) for part in request.parts]
        chunks = write_fetch_answer(request.parts, lines, correlation_id, version)
        return Reply(chunks)
    declared = decode(ReplicaFetchRequest, frame, version, position)
    asked = [each for topic in declared.topics for each in topic.partitions]
    return ReplicaFetch(broker, request, asked, correlation_id, peer).start()


def _refused(broker: "Broker", part: FetchPart) -> FetchedPartition:
    partition = broker.find_led(part.topic, part.partition)
    if partition is None:
        return FetchLine(broker.why_not_led(part.topic, part.partition))
    return FetchLine(refuse_stranger(partition, part.leader_epoch))


class ReplicaFetch:
    """One request of a follower. Its answer has only the partitions with news, and waits until
    there is one. A new high watermark is news only for a follower with readers."""

    def __init__(
        self,
        broker: "Broker",
        request: FetchFrame,
        asked: Sequence[ReplicaFetchPartition],
        correlation_id: int,
        peer: Peer,
    ) -> None:
        """`asked` has the same partitions as `request`, with the fields of our own."""
        self._broker, self._request, self._asked = broker, request, asked
        self._correlation_id, self._peer = correlation_id, peer
        self._quota = broker.replicas.quotas.leader
        self._proved = broker.replicas.proofs.answered_before(peer)
        self._changed: set[int] = set()
        self._held: set[int] = set()
        """Throttled partitions whose records have to wait for the quota."""
        self._parked: list[tuple[Partition, Wake]] = []
        self._reply: Reply | None = None
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> Reply:
        self._note_progress()
        news = self._read(range(len(self._asked)))
        if news or self._request.wait_ms_max <= 0 or self._broker.is_stopping:
            return Reply(self._answer(news))
        if self._is_question_open(range(len(self._asked))):
            return Reply(self._answer(self._marks()))
        self._reply = Reply(blocks=True)
        wait_ms = self._request.wait_ms_max
        if self._marks():
            wait_ms = min(wait_ms, MARKS_WAIT_MS_MAX)
        if self._held:
            wait_ms = min(wait_ms, self._quota.wait_ms)
        self._timer = asyncio.get_running_loop().call_later(wait_ms / 1000, self._end_wait)
        for index, part in enumerate(self._request.parts):
            partition = self._broker.find_led(part.topic, part.partition)
            if partition is None:
                continue
            wake = partial(self._on_change, index)
            self._parked.append((partition, wake))
            partition.park_follower(wake)
            if self._asked[index].has_readers:
                partition.park(wake, reach=Reach.COMMITTED)
        return self._reply

    def _note_progress(self) -> None:
        """A follower that requests an offset proves that it has everything below."""
        broker, request = self._broker, self._request
        now_ms, may_join = broker.clock.monotonic_ms(), broker.image.is_alive(request.replica_id)
        for part, asked in zip(request.parts, self._asked, strict=True):
            partition = broker.find_led(part.topic, part.partition)
            if partition is not None and partition.on_follower_fetch(
                request.replica_id,
                part,
                broker_epoch=request.replica_epoch,
                marks=(asked.cleaned_to, asked.deletes_dropped_to),
                may_join=may_join,
                proved=self._proved,
                now_ms=now_ms,
            ):
                broker.proposals.add(partition)

    def _read(self, indexes: Iterable[int]) -> dict[int, FetchedPartition]:
        """Returns the lines with news, within the request's limit of bytes."""
        left, news = self._request.bytes_max, dict[int, FetchedPartition]()
        is_first = True
        for index in indexes:
            line = self._read_part(index, left, is_first)
            if line is not None:
                news[index] = line
                left -= line.record_bytes
                is_first = is_first and not line.record_bytes
        return news

    def _read_part(self, index: int, left: int, is_first: bool) -> FetchedPartition | None:
        part = self._request.parts[index]
        partition = self._broker.find_led(part.topic, part.partition)
        if partition is None or part.leader_epoch < 0:
            return _refused(self._broker, part)
        if not partition.is_replicated_by(self._request.replica_id):
            return FetchLine(refuse_stranger(partition, part.leader_epoch))
        bytes_max = max(0, min(left, part.bytes_max))
        is_throttled = self._quota.is_throttled(partition.topic, partition.index)
        if is_throttled and not partition.waits_for(self._request.replica_id):
            bytes_max = min(bytes_max, self._room(index))
        line = read_line(
            partition, part, reach=Reach.END, bytes_max=bytes_max, at_least_one=is_first
        )
        if line.error_code:
            return line
        if is_throttled and line.record_bytes:
            self._quota.record(line.record_bytes)  # what is read is sent
        log, asked = partition.log, self._asked[index]
        agreed_to, drops = partition.agreed_to, partition.drops if log.cleaned_to else 0
        line = line._replace(marks=(log.cleaned_to, log.deletes_dropped_to, agreed_to, drops))
        has_news = (
            line.record_bytes > 0
            or line.diverging is not None
            or line.log_start_offset > part.log_start_offset
            or line.marks[:2] != (asked.cleaned_to, asked.deletes_dropped_to)
            or agreed_to > asked.agreed_to
            or (asked.has_readers and line.high_watermark > asked.high_watermark)
        )
        return line if has_news else None

    def _room(self, index: int) -> int:
        """Returns the bytes that may be read now for a follower that nobody waits for; without any
        it is held back."""
        room = self._quota.room()
        if not room:
            self._held.add(index)
        return room

    def _on_change(self, index: int) -> None:
        """Called when the partition has news; all of one turn of the loop are answered at once."""
        if not self._changed:
            asyncio.get_running_loop().call_soon(self._answer_changed)
        self._changed.add(index)

    def _answer_changed(self) -> None:
        assert self._reply is not None, "only a parked fetch is woken"
        if self._reply.is_abandoned:
            self._leave()
        elif self._reply.chunks is None:
            changed = sorted(self._changed)
            news = self._read(changed)
            self._changed.clear()
            if news or self._broker.is_stopping or self._is_question_open(changed):
                self._finish(news)

    def _is_question_open(self, indexes: Iterable[int]) -> bool:
        """Whether an answer, even without news, lets the follower prove that this broker leads."""
        broker, request = self._broker, self._request
        if self._proved == broker.replicas.proofs.question:
            return False
        parts = [request.parts[index] for index in indexes]
        led = (broker.find_led(part.topic, part.partition) for part in parts)
        return any(each is not None and each.is_asked(request.replica_id) for each in led)

    def _end_wait(self) -> None:
        self._finish(self._read(sorted(self._held)))

    def _finish(self, news: dict[int, FetchedPartition]) -> None:
        """Answers with these news; without any, the follower learns the high watermarks."""
        self._leave()
        assert self._reply is not None, "only a parked fetch is finished later"
        if not self._reply.is_abandoned and self._reply.chunks is None:
            self._reply.fulfil(self._answer(news or self._marks()))

    def _marks(self) -> dict[int, FetchedPartition]:
        lines = dict[int, FetchedPartition]()
        for index, part in enumerate(self._request.parts):
            partition = self._broker.find_led(part.topic, part.partition)
            if partition is None:
                continue
            if partition.high_watermark > self._asked[index].high_watermark:
                lines[index] = read_line(
                    partition, part, reach=Reach.END, bytes_max=0, at_least_one=False
                )
        return lines

    def _answer(self, news: dict[int, FetchedPartition]) -> Sequence[ResponsePart]:
        self._broker.replicas.proofs.note_answer(self._peer)
        parts = [self._request.parts[index] for index in news]
        return write_fetch_answer(parts, list(news.values()), self._correlation_id, VERSION)

    def _leave(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for partition, wake in self._parked:
            partition.unpark_follower(wake)
            partition.unpark(wake)
        self._parked.clear()
