"""This broker's part in the metadata quorum, on the files of the metadata partition and over
connections to the others."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from random import Random
from typing import TYPE_CHECKING, Any

from headwater.core_log.broker.peers import Address, Peers
from headwater.core_log.broker.quorum_fetch import fetch_snapshot
from headwater.core_log.broker.quorum_log import (
    NO_EPOCH,
    LogView,
    encode_leader_change,
    encode_voters,
    find_voters,
    voters_in,
)
from headwater.core_log.broker.quorum_messages import (
    FETCH_WAIT_MS,
    Sender,
    begin_epoch_request,
    end_epoch_request,
    fetch_request,
    read_vote_response,
    update_voter_request,
    vote_request,
)
from headwater.core_log.broker.voter_places import VoterPlaces
from headwater.core_log.foundation.clock import Clock
from headwater.core_log.foundation.errors import (
    CorruptLog,
    DecodeError,
    HeadwaterError,
    LogUnavailable,
    NotController,
    StorageFailed,
)
from headwater.core_log.links.connection import ConnectionLost, ConnectionRefused
from headwater.core_log.protocol.error_codes import ErrorCode
from headwater.core_log.protocol.messages.fetch import FetchResponse, PartitionData, SnapshotId
from headwater.core_log.records.batch_header import BatchHeader
from headwater.core_log.replication.follower import EpochEnd
from headwater.core_log.replication.quorum import (
    BeginQuorumEpochMessage,
    LeaderChange,
    Message,
    Quorum,
    QuorumAnswer,
    QuorumEffects,
    QuorumFetch,
    Timeouts,
    VoteMessage,
)
from headwater.core_log.replication.snapshots import MetadataSnapshot, SnapshotHead
from headwater.core_log.replication.voters import (
    NOBODY,
    ElectionState,
    ReplicaKey,
    VoteLost,
    Voter,
    VoterHistory,
    read_quorum_state,
    write_quorum_state,
)
from headwater.core_log.storage.files import Files, refusal_of
from headwater.core_log.storage.partition_log import PartitionLog

if TYPE_CHECKING:
    from headwater.core_log.broker.partition import Partition

logger = logging.getLogger(__name__)
SENDING, HAND_OVER_S_MAX = "send", 1.0
REFUSED_WAIT_S_MAX = 0.2
"""Longest time by chance before standing when the leader's process is gone: both of the others
learn it at the same moment, and would divide the votes."""


async def no_snapshot(data: bytes) -> None:
    raise AssertionError("a quorum that takes snapshots has somewhere to put them")


class MetadataQuorum:
    """Does what the quorum decides, and tells it what happens. As the leader of the metadata
    partition it says what is committed there."""

    has_enough_in_sync = True
    progress: Mapping[int, object] = {}
    """No other broker follows this partition by the rules of other partitions."""

    def __init__(
        self,
        log: PartitionLog,
        files: Files,
        replica: ReplicaKey,
        *,
        clock: Clock,
        random: Random,
        snapshot: SnapshotHead | None = None,
        is_founder: bool = True,
        is_doubtful: bool = False,
    ) -> None:
        """A founder has begun the cluster, so that it votes until a record says otherwise."""
        self._log, self._files, self._clock, self._random = log, files, clock, random
        self.replica, self.snapshot = replica, snapshot
        self.places = VoterPlaces(replica)
        self._partition: Partition | None = None
        self._peers: Peers | None = None
        self._sender = Sender(replica, "", "", 0)
        self._timer: asyncio.TimerHandle | None = None
        self._tasks = dict[asyncio.Task[Any], None]()
        self._sending: set[Message] = set()
        self._asked: tuple[QuorumFetch, asyncio.Task[Any]] | None = None
        self._moved = asyncio.Event()
        self._is_failed = False
        self.last_leader = (NOBODY, 0)
        """The leader that this follower has heard last, and when."""
        self.on_role: Callable[[], None] = lambda: None
        """Called when this node begins to lead, or has lost the lead."""
        self.on_commit: Callable[[], None] = lambda: None
        self.on_doubt_ended: Callable[[], None] = lambda: None
        self.install_snapshot: Callable[[bytes], Awaitable[None]] = no_snapshot
        """Puts a snapshot in the place of the log and the image; it calls `on_snapshot`."""
        self._view = LogView(log, NO_EPOCH if snapshot is None else snapshot.epoch)
        timeouts = self._timeouts = Timeouts()
        self._tell_ms = 0
        """Before this time the leader is not told again where this node listens."""
        voters = self._read_voters(is_founder=is_founder)
        if is_doubtful and not is_founder and voters.latest == {replica}:
            raise VoteLost("record of the voters is lost", directory=str(log.directory))
        self.quorum = Quorum(
            replica,
            self._view,
            stored=self._read_state(voters),
            voters=voters,
            timeouts=timeouts,
            jitter_ms=lambda: random.randrange(timeouts.election_ms),
            now_ms=clock.monotonic_ms(),
            is_doubtful=is_doubtful,
        )
        if self.is_alone:
            self._do(self.quorum.on_tick(clock.monotonic_ms()))
            assert self.quorum.is_leader, "an only voter elects itself"

    def _read_state(self, voters: VoterHistory) -> ElectionState:
        """An only voter has promised nothing to others that the epochs of its log do not tell. One
        of several may have given its vote: without the file it could give it twice."""
        damage, state = "quorum-state is missing", None
        try:
            state = read_quorum_state(self._files, self._log.directory)
        except DecodeError as error:
            damage = str(error)
            logger.warning("%s", error)
        has_promised = voters.latest_offset >= 0 and voters.latest != {self.replica}
        if state is None and has_promised:
            raise VoteLost(damage, directory=str(self._log.directory))
        return state or ElectionState()

    def _read_voters(self, *, is_founder: bool) -> VoterHistory:
        history = VoterHistory(frozenset({self.replica}) if is_founder else frozenset())
        if self.snapshot is not None and self.snapshot.voters:
            self.places.start_over(self.snapshot.end_offset, self.snapshot.voters)
            keys = frozenset(each.key for each in self.snapshot.voters)
            history.start_over(self.snapshot.end_offset, keys)
        for header in self._log.heads(self._log.start_offset):
            if header.is_control and header.base_offset > history.latest_offset:
                batch = next(self._log.batches(header.base_offset))
                for offset, voters in voters_in(batch):
                    self.places.add(offset, voters)
                    history.add(offset, frozenset(each.key for each in voters))
        return history

    def attach(self, partition: "Partition") -> None:
        """Connects the partition, which syncs what is appended from now on."""
        self._partition = partition

    def start(
        self,
        peers: Peers,
        *,
        cluster_id: str,
        address: Address,
        address_of: Callable[[int], Address | None],
        bootstrap: Sequence[Address],
    ) -> None:
        """Begins to take part in the quorum."""
        self._peers, self._sender = peers, Sender(self.replica, cluster_id, *address)
        self._bootstrap = bootstrap
        self.places.start(address, address_of)
        self._run(self._follow())
        self._schedule()

    async def hand_over(self) -> None:
        """Resigns as the leader, if there are others to lead."""
        if self._peers is not None and self.is_leader and not self.is_alone:
            with suppress(StorageFailed):
                self._do(self.quorum.resign(self._clock.monotonic_ms()))
            sending = [each for each in self._tasks if each.get_name() == SENDING]
            if sending:
                await asyncio.wait(sending, timeout=HAND_OVER_S_MAX)

    def abandon(self) -> None:
        """Ends all work at once."""
        self._peers = None
        if self._timer is not None:
            self._timer.cancel()
        for task in self._tasks:
            task.cancel()
        self._is_failed = True
        self._notify()

    # what others must know

    @property
    def is_alone(self) -> bool:
        """Whether this broker is the only voter."""
        return self.quorum.voters.latest == {self.replica}

    @property
    def is_leader(self) -> bool:
        return self.quorum.is_leader and not self._is_failed

    @property
    def leader_id(self) -> int:
        return NOBODY if self._is_failed else self.quorum.leader

    @property
    def voters(self) -> list[ReplicaKey]:
        return sorted(self.quorum.voters.latest)

    def voters_at(self, end_offset: int) -> tuple[Voter, ...]:
        """Returns the voters of the log below an offset; none if it has no record of them."""
        history = self.quorum.voters
        if history.latest_offset < 0:
            return ()
        keys = sorted(history.at(end_offset))
        return tuple(self.places.record_at(each, end_offset) for each in keys)

    @property
    def log(self) -> PartitionLog:
        return self._log

    @property
    def start_offset(self) -> int:
        return self._log.start_offset

    @property
    def end_offset(self) -> int:
        return self._log.end_offset

    @property
    def leader_epoch(self) -> int:
        return self.quorum.epoch

    @property
    def high_watermark(self) -> int:
        return self.quorum.high_watermark

    @property
    def observers(self) -> list[ReplicaKey]:
        """Returns the replicas that have fetched from this leader and do not vote."""
        return sorted(self.quorum.progress.keys() - self.quorum.voters.latest)

    def progress_of(self, replica: ReplicaKey) -> tuple[int, int, int]:
        """Returns up to where a replica has the log, and the wall-clock times when it was last
        heard, and when it last had all; -1 where this leader does not know it."""
        now_ms, quorum = self._clock.now_ms(), self.quorum
        if replica == self.replica:
            return self.end_offset, now_ms, now_ms
        offset, heard_ms = quorum.progress.get(replica, -1), quorum.heard_ms.get(replica)
        if offset < 0 or heard_ms is None:
            return offset, -1, -1
        began_ms, caught_up_ms = (
            now_ms - self._clock.monotonic_ms(),
            quorum.caught_up_ms.get(replica),
        )
        return offset, began_ms + heard_ms, -1 if caught_up_ms is None else began_ms + caught_up_ms

    @property
    def may_record_voters(self) -> bool:
        """Whether this leader knows its predecessors' records and its own last one as committed."""
        return self.is_leader and self.quorum.may_record_voters

    def update_voter(self, voter: Voter) -> None:
        """Writes down that a voter listens somewhere else; nothing if that must wait."""
        effects = self.quorum.repeat_voters()
        if isinstance(effects, QuorumEffects):
            self.places.tell(voter)
            self.do(effects)

    async def wait_for_change(self) -> None:
        """Returns at the next change of anything here."""
        await self._moved.wait()

    async def wait_committed(self, end_offset: int) -> None:
        """Returns once this broker has committed everything below as the leader it is now."""
        epoch = self.leader_epoch
        if self._partition is not None and self._log.durable_offset < end_offset:
            self._partition.on_written(is_urgent=True)
        while self.is_leader and self.leader_epoch == epoch and not self._log.is_offline:
            if self.high_watermark >= end_offset:
                return
            await self.wait_for_change()
        if self._log.is_offline or self._is_failed:
            raise StorageFailed("partition is offline", topic=self._log.topic, partition=0)
        raise NotController("the broker is not the active controller")

    # the partition

    def on_append(self, end_offset: int) -> None:
        """The quorum reads the log's end itself; those that wait for records look again."""
        self._notify()

    def on_durable(self, offset: int) -> None:
        """Called when our own disk has everything below `offset`, or has failed: with others to
        lead, this node leads and votes again when its log is opened again."""
        if self._log.is_offline and not self.is_alone:
            self._is_failed = True
            self.on_role()
        if not self._is_failed:
            self._do(self.quorum.on_durable(self._clock.monotonic_ms()))
        self._notify()

    # effects

    def do(self, effects: QuorumEffects) -> None:
        """Does what the quorum wants, in its order. Once the disk has refused a promise nothing is
        promised any more: the partition is offline until it is opened again."""
        if self._is_failed:
            raise StorageFailed("the metadata quorum waits for its disk", topic=self._log.topic)
        self._do(effects)

    def _do(self, effects: QuorumEffects) -> None:
        try:
            if effects.store is not None:
                write_quorum_state(self._files, self._log.directory, effects.store)
            if effects.truncate_to is not None:
                self._log.truncate_to(effects.truncate_to)
                self.places.truncate_to(effects.truncate_to)
            for record in effects.append:
                self._append(record)
            if effects.ends_doubt:
                self.on_doubt_ended()
        except OSError as error:
            self._fail(error)
            refused = refusal_of(self._files, self._log.directory, error)
            raise StorageFailed(refused, topic=self._log.topic, partition=0) from error
        except HeadwaterError as error:
            self._fail(error)
            raise
        for message in effects.send:
            self._send(message)
        if effects.role is not None:
            logger.debug("quorum: %s in epoch %d", effects.role.value, self.quorum.epoch)
            self.on_role()
        if effects.commit_to is not None:
            self.on_commit()
        self._schedule()
        self._notify()

    def _fail(self, error: Exception) -> None:
        self._is_failed = True
        if self._log.failure is None:
            self._log.sync_failed(error)
        self.on_role()
        self._notify()

    def _append(self, record: Any) -> None:
        now_ms = self._clock.now_ms()
        if isinstance(record, LeaderChange):
            batch = encode_leader_change(record.leader, self.voters, now_ms=now_ms)
        else:
            voters = self.places.next_record(record.voters)
            self.places.add(self._log.end_offset, voters)
            batch = encode_voters(voters, now_ms=now_ms)
        self._log.append(
            memoryview(batch),
            BatchHeader.read(batch),
            leader_epoch=self.quorum.epoch,
            now_ms=now_ms,
        )
        if self._partition is not None:
            self._partition.on_written(is_urgent=True)

    def _notify(self) -> None:
        moved, self._moved = self._moved, asyncio.Event()
        moved.set()
        if self._asked is not None:
            asked, task = self._asked
            if (asked.leader, asked.epoch) != (self.quorum.leader, self.quorum.epoch):
                task.cancel()

    # time and messages

    def _schedule(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._peers is None or (self.is_alone and self.quorum.is_leader):
            return
        wait_ms = max(self.quorum.next_deadline_ms() - self._clock.monotonic_ms(), 1)
        self._timer = asyncio.get_running_loop().call_later(wait_ms / 1000, self._tick)

    def _tick(self) -> None:
        self._timer = None
        if not self._is_failed:
            with suppress(StorageFailed):  # the partition is opened again
                self._do(self.quorum.on_tick(self._clock.monotonic_ms()))

    def _run(self, work: Any, name: str = "") -> None:
        task = asyncio.get_running_loop().create_task(work, name=name or None)
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)

    def _send(self, message: Message) -> None:
        """Sends it once at a time: the quorum repeats what is not answered."""
        if self._peers is not None and message not in self._sending:
            self._sending.add(message)
            self._run(self._exchange(message, self._peers), SENDING)

    async def _exchange(self, message: Message, peers: Peers) -> None:
        try:
            if isinstance(message, VoteMessage):
                ballot = message.ballot
                said = await peers.ask(ballot.voter.node_id, vote_request(ballot, self._sender))
                answer = read_vote_response(said)
                if answer is not None:
                    self.do(self.quorum.on_vote_answer(ballot, answer, self._clock.monotonic_ms()))
            elif isinstance(message, BeginQuorumEpochMessage):
                request = begin_epoch_request(message, self._sender)
                await peers.ask(message.voter.node_id, request)
            else:
                resignation = end_epoch_request(message, self._sender)
                await peers.ask(message.voter.node_id, resignation)
        except (ConnectionLost, HeadwaterError) as error:
            logger.debug("quorum: %s is not answered: %s", type(message).__name__, error)
        finally:
            self._sending.discard(message)

    # a follower

    async def _follow(self) -> None:
        """Fetches from the leader as long as somebody else leads."""
        problem = ""
        while True:
            asked = None if self._is_failed else self.quorum.next_fetch()
            if asked is None:
                await self.wait_for_change()
                continue
            try:
                await self._fetch(asked)
            except ConnectionRefused as error:
                logger.debug("quorum: the leader is gone: %s", error)
                await self._leave(asked)
            except (ConnectionLost, LogUnavailable) as error:
                logger.debug("quorum: the fetch failed: %s", error)
                await self._pause()
            except HeadwaterError as error:
                if str(error) != problem:
                    logger.error("the cluster's metadata cannot be followed: %s", error)
                problem = str(error)
                await self._pause()
            except Exception:
                logger.exception("following the cluster's metadata failed unexpectedly")
                await asyncio.sleep(1.0)

    async def _pause(self) -> None:
        await asyncio.sleep(self._random.uniform(0.05, 0.15))

    async def _fetch(self, asked: QuorumFetch) -> None:
        assert self._peers is not None, "a stopped quorum fetches nothing"
        request = fetch_request(
            asked,
            self._sender,
            high_watermark=self.high_watermark,
            start_offset=self._log.start_offset,
        )
        if asked.leader == NOBODY:
            address = self._random.choice(self._somebody())
            answering = self._peers.poll_at(address, request, wait_ms=FETCH_WAIT_MS)
        else:
            answering = self._peers.poll(asked.leader, request, wait_ms=FETCH_WAIT_MS)
        task = asyncio.ensure_future(answering)
        self._asked = (asked, task)
        try:
            await asyncio.wait([task])
        finally:
            self._asked = None
            task.cancel()
        if not task.cancelled():
            await self._take(asked, task.result())

    def _somebody(self) -> Sequence[Address]:
        """Returns the addresses at which somebody may know who leads."""
        found = [*self._bootstrap, *self.places.others]
        if not found:
            raise LogUnavailable("the addresses of the other voters are not known")
        return found

    async def _leave(self, asked: QuorumFetch) -> None:
        """The leader's process is gone: its answer that it does not lead would be the same."""
        await asyncio.sleep(self._random.uniform(0.01, REFUSED_WAIT_S_MAX))
        gone = QuorumAnswer(asked.leader, asked.epoch, NOBODY, is_from_leader=False)
        if asked.leader != NOBODY and asked.epoch == self.quorum.epoch:
            with suppress(StorageFailed):
                self.do(self.quorum.on_fetched(gone, self._clock.monotonic_ms()))

    async def _take(self, asked: QuorumFetch, response: FetchResponse) -> None:
        if response.error_code != ErrorCode.NONE:
            raise LogUnavailable(
                "the quorum refuses a fetch", code=ErrorCode(response.error_code).name
            )
        for each in response.node_endpoints:
            self.places.note(each.node_id, (each.host, each.port))
        said = response.responses[0].partitions[0]
        quorum, now_ms = self.quorum, self._clock.monotonic_ms()
        leader, epoch = said.current_leader.leader_id, said.current_leader.leader_epoch
        is_current = quorum.next_fetch() == asked and asked.leader != NOBODY
        if not is_current:  # only its news about the quorum count
            leads_itself = asked.leader == NOBODY and said.error_code == ErrorCode.NONE
            sender = leader if leads_itself else NOBODY
            self.do(quorum.on_fetched(QuorumAnswer(sender, epoch, leader, leads_itself), now_ms))
            if asked.leader == NOBODY and leader == NOBODY:
                await self._pause()
            return
        is_from_leader = said.error_code == ErrorCode.NONE
        diverging = said.diverging_epoch
        has_diverged = diverging.end_offset >= 0
        answer = QuorumAnswer(
            asked.leader,
            epoch,
            leader,
            is_from_leader,
            EpochEnd(diverging.epoch, diverging.end_offset) if has_diverged else None,
        )
        self.do(quorum.on_fetched(answer, now_ms))
        if is_from_leader:
            self.last_leader = (asked.leader, now_ms)
        if not is_from_leader:
            await asyncio.sleep(0.01)
        elif epoch == quorum.epoch and said.snapshot_id.end_offset >= 0:
            await self._take_snapshot(asked, said.snapshot_id)
        elif epoch == quorum.epoch and not has_diverged:
            self._take_records(said)
            voter = self.places.outdated
            if voter is not None and now_ms >= self._tell_ms:
                self._tell_ms = now_ms + self._timeouts.fetch_ms
                self._run(self._tell(asked, voter))

    async def _tell(self, asked: QuorumFetch, voter: Voter) -> None:
        """Tells the leader; it is repeated later if it is refused or not heard."""
        assert self._peers is not None, "a stopped quorum tells nothing"
        request = update_voter_request(voter, asked.epoch, self._sender.cluster_id)
        try:
            if await self._peers.serves(asked.leader, request.api_key):
                answer = await self._peers.ask(asked.leader, request)
                code = ErrorCode(answer.error_code)
                logger.debug("quorum: the leader was told this node's address: %s", code.name)
        except (ConnectionLost, HeadwaterError) as error:
            logger.debug("quorum: the leader was not told this node's address: %s", error)

    async def _take_snapshot(self, asked: QuorumFetch, wanted: SnapshotId) -> None:
        """Takes the snapshot that has taken the place of records which we do not have."""
        assert self._peers is not None, "a stopped quorum fetches nothing"

        def is_current() -> bool:
            return (self.quorum.leader, self.quorum.epoch) == (asked.leader, asked.epoch)

        data = await fetch_snapshot(self._peers, asked, wanted, self._sender, is_current=is_current)
        await self.install_snapshot(data)

    def on_snapshot(self, snapshot: MetadataSnapshot) -> None:
        """Called when a snapshot is on disk: our log begins and ends with it from now on."""
        self._log.start_over(snapshot.end_offset)
        self._view.start_epoch = snapshot.epoch
        self.snapshot = SnapshotHead(snapshot.end_offset, snapshot.epoch, snapshot.voters)
        self.places.start_over(snapshot.end_offset, snapshot.voters)
        keys = frozenset(each.key for each in snapshot.voters)
        self.do(self.quorum.on_snapshot(snapshot.end_offset, keys))

    def _take_records(self, said: PartitionData) -> None:
        records, end_offset = said.records or memoryview(b""), self._log.end_offset
        voters = list(find_voters(records))
        if len(records) and BatchHeader.read(records).base_offset != end_offset:
            raise CorruptLog(
                "the leader's metadata does not continue ours",
                end_offset=end_offset,
                base_offset=BatchHeader.read(records).base_offset,
            )
        if len(records):
            self._log.append_as_follower(records, now_ms=self._clock.now_ms())
        for offset, each in voters:
            self.places.add(offset, each)
        keys = [(offset, frozenset(each.key for each in found)) for offset, found in voters]
        mark, is_at_end = said.high_watermark, not records
        self.do(self.quorum.on_append(keys, committed_to=mark, is_at_end=is_at_end))
        if len(records) and self._partition is not None:
            self._partition.on_written(is_urgent=True)
