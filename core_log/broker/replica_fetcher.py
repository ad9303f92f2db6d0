"""Copies partitions from the brokers that lead them: a task per leader, one request at a time."""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

from headwater.core_log.broker.partition import Partition
from headwater.core_log.broker.quotas import ReplicationQuota
from headwater.core_log.foundation.errors import CorruptLog, HeadwaterError
from headwater.core_log.links.connection import ConnectionLost
from headwater.core_log.model.log import TopicPartition
from headwater.core_log.protocol.error_codes import ErrorCode
from headwater.core_log.protocol.inter_broker_messages import (
    FULL_FETCH,
    NO_SESSION,
    ReplicaFetchPartition,
    ReplicaFetchPartitionResponse,
    ReplicaFetchRequest,
    ReplicaFetchResponse,
    ReplicaFetchTopic,
    next_session_epoch,
)
from headwater.core_log.protocol.messages.fetch import ForgottenTopic, ReplicaState
from headwater.core_log.replication.follower import EpochEnd, Follower, FollowerFetch
from headwater.core_log.replication.metadata import NO_LEADER

if TYPE_CHECKING:
    from headwater.core_log.broker.broker import Broker

logger = logging.getLogger(__name__)
PartitionKey = tuple[UUID, int]
WAIT_MS, IDLE_WAIT_MS = 500, 2_000
"""The leader answers by then, with or without news; the longer wait follows an answer without any.
News are answered at once."""
RETRY_S, LONG_RETRY_S = 0.05, 5.0
"""Pauses: after a leader that is not there yet, and after what only a person or time can mend."""
ANSWER_BYTES_MAX, PARTITION_BYTES_MAX = 8 << 20, 1 << 20


class FetchedPlace(NamedTuple):
    """A partition in a request, and the offset and epoch that it was asked with."""

    partition: Partition
    fetch: FollowerFetch
    bytes_max: int

    @property
    def state(self) -> tuple[object, ...]:
        """Returns the partition's state in a request."""
        partition, log = self.partition, self.partition.log
        marks = (log.cleaned_to, log.deletes_dropped_to, partition.agreed_to)
        offsets = (log.start_offset, partition.high_watermark)
        return self.fetch, self.bytes_max, offsets, marks, partition.has_readers


class FetchSession:
    """The leader's session of the requests to it (KIP-227): the next one names only changes. A
    request without an answer ends it, since nobody knows what the leader has kept."""

    def __init__(self) -> None:
        self.session_id, self.epoch = NO_SESSION, FULL_FETCH
        self._told: dict[PartitionKey, tuple[object, ...]] = {}

    def changes(
        self, places: Mapping[PartitionKey, FetchedPlace]
    ) -> tuple[Sequence[FetchedPlace], Sequence[PartitionKey]]:
        """Returns the places that the leader does not know so, and what is asked for no more."""
        told, self._told = self._told, {key: place.state for key, place in places.items()}
        new = [place for key, place in places.items() if told.get(key) != self._told[key]]
        return new, [key for key in told if key not in places]

    def on_answer(self, session_id: int) -> None:
        """Called with the session that the leader has kept; it may have kept none."""
        if session_id == NO_SESSION:
            self.epoch, self._told = FULL_FETCH, {}
        else:
            self.epoch = next_session_epoch(self.epoch)
        self.session_id = session_id


class ReplicaFetchers:
    """Gives each partition that follows to the fetcher of its leader."""

    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self._fetchers: dict[int, LeaderFetcher] = {}

    def follow(self, partition: Partition) -> None:
        """Called when the partition follows, or follows another leader or epoch."""
        follower = partition.follower
        assert follower is not None, "only a follower fetches"
        self.leave(partition)
        if follower.leader_id != NO_LEADER:
            fetcher = self._fetchers.get(follower.leader_id)
            if fetcher is None:
                fetcher = LeaderFetcher(self._broker, follower.leader_id)
                self._fetchers[follower.leader_id] = fetcher
            fetcher.add(partition)

    def leave(self, partition: Partition) -> None:
        for fetcher in self._fetchers.values():
            fetcher.remove(partition)

    def stop(self) -> None:
        """Stops at once; nothing that comes in is written any more."""
        for fetcher in self._fetchers.values():
            fetcher.stop()

    async def close(self) -> None:
        self.stop()
        for fetcher in self._fetchers.values():
            await fetcher.wait_stopped()


class LeaderFetcher:
    """All partitions of one leader. It asks for more only when what it has is on disk."""

    def __init__(self, broker: "Broker", leader_id: int) -> None:
        self._broker, self._leader_id = broker, leader_id
        self._partitions: dict[Partition, float] = {}
        """With the loop's time before which the partition is not asked for."""
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._asking: asyncio.Task[ReplicaFetchResponse] | None = None
        self._session = FetchSession()
        self._is_lost = self._is_closed = self._is_idle = False

    def add(self, partition: Partition) -> None:
        if self._is_closed:
            return
        self._partitions[partition] = 0.0
        self._changed.set()
        if self._asking is not None:  # its answer may come only when the leader has news
            self._asking.cancel()
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())

    def remove(self, partition: Partition) -> None:
        self._partitions.pop(partition, None)

    def stop(self) -> None:
        self._is_closed = True
        self._partitions.clear()
        if self._task is not None:
            self._task.cancel()

    async def wait_stopped(self) -> None:
        if self._task is not None:
            await asyncio.wait([self._task])

    async def _run(self) -> None:
        try:
            while self._partitions:
                self._changed.clear()
                try:
                    await self._fetch()
                except Exception:
                    logger.exception("fetching from broker %d failed", self._leader_id)
                    await self._pause(LONG_RETRY_S)
        finally:
            self._task = None

    async def _fetch(self) -> None:
        """One request, and its answer on disk."""
        asked = self._due()
        if not asked:
            await self._pause(self._until_due_s())
            return
        try:
            answer = await self._ask(asked)
        except (ConnectionLost, HeadwaterError) as error:
            self._note_loss(error)
            await self._pause(RETRY_S)
            return
        if answer is None:
            return
        if answer.error_code:  # the leader does not know the session any more
            await self._pause(RETRY_S)
        else:
            self._is_lost, self._is_idle = False, not answer.responses
            written = self._take(asked, answer)
            await self._wait_synced(written)

    def _due(self) -> dict[PartitionKey, FetchedPlace]:
        now_s, asked = asyncio.get_running_loop().time(), dict[PartitionKey, FetchedPlace]()
        quota, throttled_bytes = self._quota, 0
        for partition, not_before_s in self._partitions.items():
            follower = partition.follower
            if not_before_s > now_s or follower is None or partition.is_offline:
                continue
            fetch = follower.next_fetch()
            if fetch is None:
                continue
            bytes_max = PARTITION_BYTES_MAX
            if quota.limit is not None and self._is_held_back(partition, follower):
                bytes_max = min(bytes_max, quota.room() - throttled_bytes)
                throttled_bytes += bytes_max
            if bytes_max > 0:
                place = FetchedPlace(partition, fetch, bytes_max)
                asked[partition.topic_id, partition.index] = place
            else:
                self._delay(partition, quota.wait_ms / 1_000)
        return asked

    @property
    def _quota(self) -> ReplicationQuota:
        return self._broker.replicas.quotas.follower

    def _is_throttled(self, partition: Partition) -> bool:
        return self._quota.is_throttled(partition.topic, partition.index)

    def _is_held_back(self, partition: Partition, follower: Follower) -> bool:
        """Whether a copy is throttled, and nobody waits for it: it is not in sync, nor soon."""
        if not self._is_throttled(partition) or follower.has_caught_up:
            return False
        return not self._is_in_sync(partition)

    def _is_in_sync(self, partition: Partition) -> bool:
        """Whether the metadata says so, as far as it has come here."""
        record = self._broker.image.partition(partition.topic, partition.index)
        return record is not None and self._broker.node_id in record.in_sync

    def _until_due_s(self) -> float:
        now_s = asyncio.get_running_loop().time()
        online = [at_s for each, at_s in self._partitions.items() if not each.is_offline]
        return max(min(online, default=now_s + LONG_RETRY_S) - now_s, RETRY_S)

    async def _pause(self, seconds: float) -> None:
        """Waits, but not longer than until there is something new to fetch."""
        waiting = asyncio.ensure_future(self._changed.wait())
        try:
            await asyncio.wait([waiting], timeout=seconds)
        finally:
            waiting.cancel()

    async def _ask(self, asked: Mapping[PartitionKey, FetchedPlace]) -> ReplicaFetchResponse | None:
        """Returns the answer; None if something to be asked as well has come up."""
        wait_ms = IDLE_WAIT_MS if self._is_idle else WAIT_MS
        if len(asked) < len(self._partitions):
            wait_ms = min(wait_ms, round(self._until_due_s() * 1_000))
        session, self._session = self._session, FetchSession()
        request = self._request(session, asked, wait_ms)
        polling = self._broker.peers.poll(self._leader_id, request, wait_ms=wait_ms)
        self._asking = asyncio.get_running_loop().create_task(polling)
        try:
            await asyncio.wait([self._asking])
            if self._asking.cancelled():
                return None
            answer = self._asking.result()
            if not answer.error_code:
                session.on_answer(answer.session_id)
                self._session = session
            return answer
        finally:
            self._asking.cancel()
            self._asking = None

    def _request(
        self, session: FetchSession, asked: Mapping[PartitionKey, FetchedPlace], wait_ms: int
    ) -> ReplicaFetchRequest:
        places, left = session.changes(asked)
        by_topic = defaultdict[UUID, list[ReplicaFetchPartition]](list)
        forgotten = defaultdict[UUID, list[int]](list)
        for topic_id, index in left:
            forgotten[topic_id].append(index)
        for partition, fetch, bytes_max in places:
            log = partition.log
            by_topic[partition.topic_id].append(
                ReplicaFetchPartition(
                    partition=partition.index,
                    current_leader_epoch=fetch.leader_epoch,
                    fetch_offset=fetch.offset,
                    last_fetched_epoch=fetch.last_fetched_epoch,
                    log_start_offset=log.start_offset,
                    partition_max_bytes=bytes_max,
                    high_watermark=partition.high_watermark,
                    cleaned_to=log.cleaned_to,
                    deletes_dropped_to=log.deletes_dropped_to,
                    has_readers=partition.has_readers,
                    agreed_to=partition.agreed_to,
                )
            )
        return ReplicaFetchRequest(
            replica_state=ReplicaState(
                replica_id=self._broker.node_id, replica_epoch=self._broker.broker_epoch
            ),
            max_wait_ms=wait_ms,
            min_bytes=1,
            max_bytes=ANSWER_BYTES_MAX,
            session_id=session.session_id,
            session_epoch=session.epoch,
            forgotten_topics_data=[
                ForgottenTopic(topic_id=topic_id, partitions=indexes)
                for topic_id, indexes in forgotten.items()
            ],
            topics=[
                ReplicaFetchTopic(topic_id=topic_id, partitions=parts)
                for topic_id, parts in by_topic.items()
            ],
        )

    def _take(
        self, asked: Mapping[PartitionKey, FetchedPlace], answer: ReplicaFetchResponse
    ) -> list[Partition]:
        """Applies the answer; returns the partitions with something new to be synced."""
        written = []
        for topic in answer.responses:
            for line in topic.partitions:
                place = asked.get((topic.topic_id, line.partition_index))
                if place is not None and self._try_to_take(place, line):
                    written.append(place.partition)
        return written

    def _try_to_take(self, place: FetchedPlace, line: ReplicaFetchPartitionResponse) -> bool:
        """Applies one line, if the partition still is where it was asked for."""
        partition, fetch, _ = place
        follower = partition.follower
        if follower is None or partition.is_offline or follower.next_fetch() != fetch:
            return False
        before = follower.high_watermark
        try:
            now_ms = self._broker.clock.now_ms()
            copy = ReplicaCopy(partition, follower, is_in_sync=self._is_in_sync(partition))
            is_taken = copy.take(fetch, line, now_ms=now_ms)
        except HeadwaterError as error:
            self._note_failure(partition, error)
            is_taken = False
        else:
            if not is_taken:
                self._delay(partition, RETRY_S)
        if follower.high_watermark < before:
            self._broker.store.lower_high_watermark(partition.log, follower.high_watermark)
        if follower.high_watermark != before:
            partition.wake()
        if is_taken:
            self._broker.replicas.forget_failure(partition)
        if line.records and self._is_throttled(partition):
            self._quota.record(len(line.records))
        if line.records and partition in self._partitions:  # the others come first the next time
            self._partitions[partition] = self._partitions.pop(partition)
        return is_taken

    def _note_failure(self, partition: Partition, error: HeadwaterError) -> None:
        """A copy that cannot go on stays out of the in-sync set, and says why."""
        at = TopicPartition(partition.topic, partition.index)
        self._broker.note_failure(at, error)
        self._delay(partition, LONG_RETRY_S)

    def _delay(self, partition: Partition, seconds: float) -> None:
        if partition in self._partitions:
            self._partitions[partition] = asyncio.get_running_loop().time() + seconds

    def _note_loss(self, error: Exception) -> None:
        """Logs that the leader does not answer, once."""
        if not self._is_lost:
            self._is_lost = True
            logger.warning(
                "broker %d, which is followed, does not answer: %s", self._leader_id, error
            )

    async def _wait_synced(self, partitions: Collection[Partition]) -> None:
        """Returns once the disk has what was appended; for an offline partition that is never."""
        left, done = len(partitions), asyncio.Event()

        def count_down() -> None:
            nonlocal left
            left -= 1
            if not left:
                done.set()

        for partition in partitions:
            partition.when_synced(partition.log.end_offset, count_down)
        if left:
            await done.wait()


class ReplicaCopy:
    """A follower's work on its leader's answer for one partition."""

    def __init__(self, partition: Partition, follower: Follower, *, is_in_sync: bool) -> None:
        self.partition, self._log, self._follower = partition, partition.log, follower
        self._is_in_sync = is_in_sync

    def take(
        self, fetch: FollowerFetch, line: ReplicaFetchPartitionResponse, *, now_ms: int
    ) -> bool:
        """Applies the answer to `fetch`. Returns False if the leader refused it."""
        if line.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            self._on_out_of_range(line)
        elif line.error_code:
            return False
        elif line.diverging_epoch.end_offset >= 0:
            leaders = EpochEnd(line.diverging_epoch.epoch, line.diverging_epoch.end_offset)
            self._log.truncate_to(self._follower.on_diverging(leaders, self._log.epochs))
            self._follower.on_truncated(self._log.end_offset, self._log.last_epoch)
        elif self._may_lack_ends(line):
            if self._is_in_sync:  # after an unclean election: others rely on what is here
                return False
            self._start_over(line.log_start_offset)
        else:
            self._copy(line, now_ms)
        return True

    def _may_lack_ends(self, line: ReplicaFetchPartitionResponse) -> bool:
        """Whether the leader's compaction may have dropped what this log never had: tombstones, so
        that the values which they deleted would stay here for ever, or the end of a transaction
        that is open here. It has not where all that is here came from this leader after it last
        dropped any."""
        log = self._log
        if log.end_offset == log.start_offset:
            return False
        may_lack = line.deletes_dropped_to > log.end_offset
        if not line.drops:  # from a broker of an older version
            return may_lack and line.deletes_dropped_to > log.deletes_dropped_to
        if line.cleaned_to > log.end_offset:
            may_lack = may_lack or log.producers.first_unstable_offset() is not None
        return may_lack and line.drops != self._follower.drops

    def _copy(self, line: ReplicaFetchPartitionResponse, now_ms: int) -> None:
        log, follower = self._log, self._follower
        cleaned_to, dropped_to = line.cleaned_to, line.deletes_dropped_to
        if cleaned_to > log.cleaned_to or dropped_to > log.deletes_dropped_to:
            log.note_cleaned(cleaned_to=cleaned_to, deletes_dropped_to=dropped_to)
        follower.on_agreed(line.agreed_to)
        if line.drops:  # an answer with a high watermark alone has none of this
            follower.on_drops(line.drops)
        if line.records:
            self.partition.append_fetched(line.records, now_ms=now_ms)
        follower.on_high_watermark(line.high_watermark)
        if line.log_start_offset > log.start_offset:
            if follower.on_leader_start(line.log_start_offset):
                log.start_over(line.log_start_offset)
            else:
                log.delete_records_before(line.log_start_offset)

    def _on_out_of_range(self, line: ReplicaFetchPartitionResponse) -> None:
        """The leader's log begins after our end, or ends before it."""
        follower = self._follower
        if line.log_start_offset <= follower.end_offset and not follower.allows_unclean:
            raise CorruptLog(
                "the leader's log ends before this one",
                hint="set unclean.leader.election.enable on the topic to give up what it lacks",
                leader=follower.leader_id,
                leader_epoch=follower.leader_epoch,
                end_offset=follower.end_offset,
            )
        self._start_over(line.log_start_offset)

    def _start_over(self, offset: int) -> None:
        self._log.start_over(offset)
        self._follower.on_start_over(offset)
