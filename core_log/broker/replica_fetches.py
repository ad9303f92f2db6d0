"""Fetches of followers, which read uncommitted records and say by them what they have on disk."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import count
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
from headwater.core_log.protocol.error_codes import ErrorCode
from headwater.core_log.protocol.fetch_frames import (
    FetchFrame,
    FetchLine,
    FetchPart,
    write_fetch_answer,
)
from headwater.core_log.protocol.inter_broker_messages import (
    FULL_FETCH,
    NO_SESSION,
    NO_SESSION_EPOCH,
    ReplicaFetchPartition,
    ReplicaFetchRequest,
    next_session_epoch,
)
from headwater.core_log.protocol.message import decode
from headwater.core_log.replication.leader import Leader

if TYPE_CHECKING:
    from headwater.core_log.broker.broker import Broker

VERSION = ReplicaFetchRequest.versions[0]
MARKS_WAIT_MS_MAX = 500
"""How long a high watermark waits for records to travel with, where nobody reads at the
follower."""
WHOLE_LOOK_MS = 5_000
"""After so long a fetch counts as one of each partition of its session, changed or not: a follower
that has all of a quiet partition is known to have it still."""

PartitionKey = tuple[str | bytes, int]


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
    is_known = broker.is_registered(request.replica_id, request.replica_epoch)
    if version != VERSION or not is_known:
        if request.session_id != NO_SESSION:
            return refuse_session(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, correlation_id, version)
        lines: list[FetchedPartition] = [_refused(broker, part) for part in request.parts]
        chunks = write_fetch_answer(request.parts, lines, correlation_id, version)
        return Reply(chunks)
    session = broker.replicas.sessions.find(broker, request)
    if isinstance(session, ErrorCode):
        return refuse_session(session, correlation_id, version)
    declared = decode(ReplicaFetchRequest, frame, version, position)
    session.take(request, declared, peer)
    return ReplicaFetch(session, request, correlation_id, peer).start()


def refuse_session(code: ErrorCode, correlation_id: int, version: int) -> Reply:
    """Answers that the session is not there as it was asked for: all is to be asked for again."""
    nothing: list[FetchedPartition] = []
    chunks = write_fetch_answer((), nothing, correlation_id, version, error_code=code)
    return Reply(chunks)


def _refused(broker: "Broker", part: FetchPart) -> FetchedPartition:
    partition = broker.find_led(part.topic, part.partition)
    if partition is None:
        return FetchLine(broker.why_not_led(part.topic, part.partition))
    return FetchLine(refuse_stranger(partition, part.leader_epoch))


class ReplicaSessions:
    """The sessions of followers: each has one at most."""

    def __init__(self) -> None:
        self._by_replica: dict[int, ReplicaSession] = {}
        self._ids = count(1)

    def find(self, broker: "Broker", request: FetchFrame) -> "ReplicaSession | ErrorCode":
        """Returns the session of a request, which may begin one or do without; an error if it is
        not there in that epoch."""
        known = self._by_replica.get(request.replica_id)
        if request.session_epoch not in (FULL_FETCH, NO_SESSION_EPOCH):
            asked = (request.session_id, request.replica_epoch)
            if known is None or (known.session_id, known.replica_epoch) != asked:
                return ErrorCode.FETCH_SESSION_ID_NOT_FOUND
            if known.epoch != request.session_epoch:
                return ErrorCode.INVALID_FETCH_SESSION_EPOCH
            return known
        if known is not None:
            del self._by_replica[request.replica_id]
            known.close()
        if request.session_epoch == NO_SESSION_EPOCH:  # from a broker of an older version
            return ReplicaSession(broker, request.replica_epoch, NO_SESSION)
        session = ReplicaSession(broker, request.replica_epoch, next(self._ids))
        self._by_replica[request.replica_id] = session
        return session

    def on_closed(self, peer: Peer) -> None:
        """Called when a connection has ended: so have the sessions that used it last."""
        for replica_id, session in list(self._by_replica.items()):
            if session.peer is peer:
                del self._by_replica[replica_id]
                session.close()


@dataclass(slots=True, eq=False)
class CachedPartition:
    """A partition of a session: how it was asked for last, twice over, and who wakes for it."""

    part: FetchPart
    asked: ReplicaFetchPartition
    wake: Wake
    partition: Partition | None = None

    def park(self, partition: Partition | None) -> None:
        """Waits for news of the partition, and no longer of the one that it was before."""
        if partition is not self.partition:
            self.unpark()
            self.partition = partition
        if partition is None:
            return
        partition.park_follower(self.wake)
        if self.asked.has_readers:
            partition.park(self.wake, reach=Reach.COMMITTED)
        else:
            partition.unpark(self.wake)

    def unpark(self) -> None:
        if self.partition is not None:
            self.partition.unpark_follower(self.wake)
            self.partition.unpark(self.wake)
            self.partition = None


@dataclass(eq=False)
class ReplicaSession:
    """A follower's session, kept as long as its connection lives, so that a fetch names only what
    changed (KIP-227). `changed` has the partitions that may have news, those first that waited
    longest; no others are looked at."""

    broker: "Broker"
    replica_epoch: int
    session_id: int
    epoch: int = FULL_FETCH
    peer: Peer | None = None
    fetch: "ReplicaFetch | None" = None
    partitions: dict[PartitionKey, CachedPartition] = field(default_factory=dict)
    changed: dict[PartitionKey, None] = field(default_factory=dict)
    _looked_ms: int = field(init=False)
    _is_woken: bool = False

    def __post_init__(self) -> None:
        self._looked_ms = self.broker.clock.monotonic_ms()

    def take(self, request: FetchFrame, declared: ReplicaFetchRequest, peer: Peer) -> None:
        """Takes what a request says anew. `declared` has the same partitions as `request`, with
        the fields of our own."""
        if self.fetch is not None:
            self.fetch.end()
        self.peer, self.epoch = peer, next_session_epoch(self.epoch)
        for topic in declared.forgotten_topics_data:
            for index in topic.partitions:
                self._forget((topic.topic_id.bytes, index))
        asked = (each for topic in declared.topics for each in topic.partitions)
        for part, each in zip(request.parts, asked, strict=True):
            key = (part.topic, part.partition)
            cached = self.partitions.get(key)
            if cached is None:
                cached = self.partitions[key] = CachedPartition(
                    part, each, partial(self._on_change, key)
                )
            cached.part, cached.asked = part, each
            cached.park(self.broker.find_led(*key))
            self.changed[key] = None
        now_ms = self.broker.clock.monotonic_ms()
        if now_ms - self._looked_ms >= WHOLE_LOOK_MS:
            self._looked_ms = now_ms
            for key, cached in self.partitions.items():
                cached.park(self.broker.find_led(*key))
                self.changed[key] = None

    def _forget(self, key: PartitionKey) -> None:
        cached = self.partitions.pop(key, None)
        self.changed.pop(key, None)
        if cached is not None:
            cached.unpark()

    def _on_change(self, key: PartitionKey) -> None:
        """Called when the partition has news; all of one turn of the loop are answered at once. One
        that is not led here any more is not held: its follower may never ask again."""
        cached = self.partitions[key]
        if self.broker.find_led(*key) is not cached.partition:
            cached.unpark()
        self.changed[key] = None
        if self.fetch is not None and not self._is_woken:
            self._is_woken = True
            asyncio.get_running_loop().call_soon(self._answer_changed)

    def _answer_changed(self) -> None:
        self._is_woken = False
        if self.fetch is not None:
            self.fetch.on_changed()

    def close(self) -> None:
        """Wakes no more; a request that waits is answered, since another one may wait behind it."""
        for cached in self.partitions.values():
            cached.unpark()
        self.partitions.clear()
        self.changed.clear()
        if self.fetch is not None:
            self.fetch.end()


class ReplicaFetch:
    """One request of a follower. Its answer has only the partitions with news, and waits until
    there is one. A new high watermark is news only for a follower with readers."""

    def __init__(
        self, session: ReplicaSession, request: FetchFrame, correlation_id: int, peer: Peer
    ) -> None:
        self._broker, self._session, self._request = session.broker, session, request
        self._correlation_id, self._peer = correlation_id, peer
        self._quota = self._broker.replicas.quotas.leader
        self._proved = self._broker.replicas.proofs.answered_before(peer)
        self._is_held = False
        """Whether records of a throttled partition have to wait for the quota."""
        self._reply: Reply | None = None
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> Reply:
        self._note_progress()
        news = self._read()
        is_due = self._request.wait_ms_max <= 0 or self._broker.is_stopping
        if news or is_due or self._is_question_open():
            reply = Reply(self._answer(news or ({} if is_due else self._marks())))
            self._leave()
            return reply
        self._reply = Reply(blocks=True)
        wait_ms = self._request.wait_ms_max
        if self._marks():
            wait_ms = min(wait_ms, MARKS_WAIT_MS_MAX)
        if self._is_held:
            wait_ms = min(wait_ms, self._quota.wait_ms)
        self._timer = asyncio.get_running_loop().call_later(wait_ms / 1000, self._end_wait)
        self._session.fetch = self
        return self._reply

    def _note_progress(self) -> None:
        """A follower that requests an offset proves that it has everything below."""
        broker, request = self._broker, self._request
        now_ms, may_join = broker.clock.monotonic_ms(), broker.image.is_alive(request.replica_id)
        for key in tuple(self._session.changed):
            cached = self._session.partitions[key]
            asked, partition = cached.asked, broker.find_led(*key)
            if partition is not None and partition.on_follower_fetch(
                request.replica_id,
                cached.part,
                broker_epoch=request.replica_epoch,
                marks=(asked.cleaned_to, asked.deletes_dropped_to),
                may_join=may_join,
                proved=self._proved,
                now_ms=now_ms,
            ):
                broker.proposals.add(partition)

    def _read(self) -> dict[PartitionKey, FetchedPartition]:
        """Returns the lines with news, within the request's limit of bytes. A partition that has
        none, and whose follower has nothing more to tell or to hear, is not looked at again before
        it changes."""
        session = self._session
        left, news = self._request.bytes_max, dict[PartitionKey, FetchedPartition]()
        is_first, self._is_held = True, False
        for key in tuple(session.changed):
            cached, partition = session.partitions[key], self._broker.find_led(*key)
            if partition is not cached.partition:  # it is led here since it was asked for
                cached.park(partition)
            bytes_max = self._bytes_max(cached, partition, left)
            line = self._read_partition(cached, partition, bytes_max, is_first)
            if line is not None:
                news[key] = line
                left -= line.record_bytes
                is_first = is_first and not line.record_bytes
            elif bytes_max == cached.part.bytes_max and self._is_settled(cached, partition):
                del session.changed[key]
        return news

    def _bytes_max(self, cached: CachedPartition, partition: Partition | None, left: int) -> int:
        bytes_max = max(0, min(left, cached.part.bytes_max))
        if partition is None or not self._quota.is_throttled(partition.topic, partition.index):
            return bytes_max
        if partition.waits_for(self._request.replica_id):
            return bytes_max
        room = self._quota.room()
        self._is_held = self._is_held or not room
        return min(bytes_max, room)

    def _is_settled(self, cached: CachedPartition, partition: Partition | None) -> bool:
        """Whether a follower in sync has all records, the high watermark and the mark of compaction
        that all have, and is asked for no proof."""
        replica_id = self._request.replica_id
        return (
            partition is not None
            and isinstance(leader := partition.leader, Leader)
            and replica_id in leader.in_sync
            and not partition.is_asked(replica_id)
            and cached.asked.high_watermark >= partition.log.end_offset
            and cached.asked.agreed_to >= partition.log.cleaned_to
        )

    def _read_partition(
        self, cached: CachedPartition, partition: Partition | None, bytes_max: int, is_first: bool
    ) -> FetchedPartition | None:
        part, asked = cached.part, cached.asked
        if partition is None or part.leader_epoch < 0:
            return _refused(self._broker, part)
        if not partition.is_replicated_by(self._request.replica_id):
            return FetchLine(refuse_stranger(partition, part.leader_epoch))
        line = read_line(
            partition, part, reach=Reach.END, bytes_max=bytes_max, at_least_one=is_first
        )
        if line.error_code:
            return line
        if line.record_bytes and self._quota.is_throttled(partition.topic, partition.index):
            self._quota.record(line.record_bytes)  # what is read is sent
        log = partition.log
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

    def on_changed(self) -> None:
        """Called when partitions have changed while the request waits."""
        assert self._reply is not None, "only a parked fetch is woken"
        if self._reply.is_abandoned:
            self._leave()
            return
        news = self._read()
        if news or self._broker.is_stopping or self._is_question_open():
            self._finish(news)

    def _is_question_open(self) -> bool:
        """Whether an answer, even without news, lets the follower prove that this broker leads."""
        broker, request = self._broker, self._request
        if self._proved == broker.replicas.proofs.question:
            return False
        led = (broker.find_led(*key) for key in self._session.changed)
        return any(each is not None and each.is_asked(request.replica_id) for each in led)

    def _end_wait(self) -> None:
        self._finish(self._read() if self._is_held else {})

    def end(self) -> None:
        """Called when the session ends while the request waits."""
        self._finish({})

    def _finish(self, news: dict[PartitionKey, FetchedPartition]) -> None:
        """Answers with these news; without any, the follower learns the high watermarks."""
        assert self._reply is not None, "only a parked fetch is finished later"
        answer = None if self._reply.is_abandoned else self._answer(news or self._marks())
        self._leave()
        if answer is not None:
            self._reply.fulfil(answer)

    def _marks(self) -> dict[PartitionKey, FetchedPartition]:
        lines = dict[PartitionKey, FetchedPartition]()
        for key in self._session.changed:
            cached, partition = self._session.partitions[key], self._broker.find_led(*key)
            if partition is None:
                continue
            if partition.high_watermark > cached.asked.high_watermark:
                lines[key] = read_line(
                    partition, cached.part, reach=Reach.END, bytes_max=0, at_least_one=False
                )
        return lines

    def _answer(self, news: dict[PartitionKey, FetchedPartition]) -> Sequence[ResponsePart]:
        session = self._session
        self._broker.replicas.proofs.note_answer(self._peer)
        parts = [session.partitions[key].part for key in news]
        for key, line in news.items():  # those without records come first the next time
            if line.record_bytes:
                del session.changed[key]
                session.changed[key] = None
        return write_fetch_answer(
            parts, list(news.values()), self._correlation_id, VERSION, session_id=session.session_id
        )

    def _leave(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._session.fetch = None
        if self._session.session_id == NO_SESSION:
            self._session.close()
