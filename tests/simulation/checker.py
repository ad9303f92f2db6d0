"""Holds what clients were told and shown against what the log holds at the end."""

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from threading import Lock

from headwater.core_log.model.log import Isolation, TopicPartition

Value = str
"""A record's value, which nobody sends twice."""


class Outcome(Enum):
    """The end of a transaction, as its writer was told."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    UNKNOWN = "unknown"


@dataclass
class Sent:
    """One transaction, or one append with no transaction around it."""

    writer: str
    instance: int
    """Counts the openings of the writer's name."""
    values: list[tuple[TopicPartition, Value]]
    """In the order of the calls."""
    offsets: dict[Value, int] = field(default_factory=dict)
    """The offsets that were answered."""
    reads: list[Value] = field(default_factory=list)
    """The values that it was made from."""
    outcome: Outcome = Outcome.UNKNOWN
    is_exact: bool = True
    """Whether its values are there at most once, and in order."""
    commit_at: int = -1
    """The place in the history at which the writer asked for the commit."""


@dataclass(frozen=True)
class Opened:
    """A writer of that name is ready, so that its predecessors are fenced."""

    writer: str
    instance: int
    at: int


@dataclass(frozen=True)
class Poll:
    """One answer to a reader, which goes on at `next_offset`."""

    reader: str
    isolation: Isolation
    partition: TopicPartition
    from_offset: int
    records: Sequence[tuple[int, Value]]
    next_offset: int


@dataclass(frozen=True)
class Marks:
    """The offsets of a partition, as somebody was told."""

    reader: str
    partition: TopicPartition
    stable: int
    asked_at: int
    told_at: int


@dataclass(frozen=True)
class GroupStart:
    """A member of a group was given a partition, and begins to read it at `offset`."""

    group: str
    partition: TopicPartition
    offset: int
    at: int


@dataclass(frozen=True)
class GroupCommit:
    """The cluster has taken a group's offset."""

    group: str
    partition: TopicPartition
    offset: int
    asked_at: int
    told_at: int


@dataclass
class Observed:
    """The whole history, in the order in which clients learnt it."""

    sent: list[Sent] = field(default_factory=list)
    opened: list[Opened] = field(default_factory=list)
    polls: list[Poll] = field(default_factory=list)
    marks: list[Marks] = field(default_factory=list)
    final: dict[TopicPartition, list[tuple[int, Value]]] = field(default_factory=dict)
    """All committed records, read when all was over."""
    relayed: dict[str, tuple[str, str]] = field(default_factory=dict)
    """By writer: the topic that it reads and the topic that it writes, each value once."""
    compacted: set[str] = field(default_factory=set)
    """Topics in which an older value of a key may be gone; a key is the value up to its `=`."""
    stuck: list[str] = field(default_factory=list)
    """Everything that did not go on although nothing failed any more."""
    group_starts: list[GroupStart] = field(default_factory=list)
    group_commits: list[GroupCommit] = field(default_factory=list)
    group_final: dict[tuple[str, TopicPartition], int] = field(default_factory=dict)
    """The offset of each group in each partition that it reads, asked for when all was over."""

    _place: int = 0
    _one_at_a_time: Lock = field(default_factory=Lock, repr=False)

    def place(self) -> int:
        """The place in the history of what happens now; no two things have the same."""
        with self._one_at_a_time:  # some clients have threads of their own
            self._place += 1
            return self._place


def problems_of(seen: Observed) -> list[str]:
    """Everything that contradicts the log's promises; nothing where all is well."""
    places = _places(seen)
    return [
        *(f"stuck: {each}" for each in seen.stuck),
        *_lost_or_uncommitted(seen, places),
        *_torn(seen, places),
        *_invented_or_doubled(seen, places),
        *_moved(seen, places),
        *_out_of_order(seen, places),
        *_other_values(seen),
        *_bad_polls(seen),
        *_marks_gone_back(seen),
        *_older_than_acknowledged(seen),
        *_unfenced(seen),
        *_badly_relayed(seen),
        *_circular(seen),
        *_group_offsets_gone_back(seen),
        *_unread_by_groups(seen),
    ]


Places = Mapping[Value, list[tuple[TopicPartition, int]]]


def _places(seen: Observed) -> Places:
    places: dict[Value, list[tuple[TopicPartition, int]]] = defaultdict(list)
    for partition, records in seen.final.items():
        for offset, value in records:
            places[value].append((partition, offset))
    return places


def _committed_reads(seen: Observed) -> set[Value]:
    return {
        value
        for poll in seen.polls
        if poll.isolation is Isolation.COMMITTED
        for _, value in poll.records
    }


def _lost_or_uncommitted(seen: Observed, places: Places) -> Iterable[str]:
    read = _committed_reads(seen)
    for each in seen.sent:
        for partition, value in each.values:
            is_there = value in places
            if partition.topic in seen.compacted:
                is_there = is_there or each.outcome is not Outcome.ABORTED  # or compacted away
            if each.outcome is Outcome.COMMITTED and not is_there:
                yield f"lost: {value} was acknowledged in {partition}, and is gone"
            if each.outcome is Outcome.ABORTED and is_there:
                yield f"aborted and stored: {value} in {partition}"
            if value in read and each.outcome is Outcome.ABORTED:
                yield f"aborted read: {value} in {partition}"
            elif value in read and not is_there:
                yield f"read before its commit: {value} in {partition} is not there at the end"


def _torn(seen: Observed, places: Places) -> Iterable[str]:
    for each in seen.sent:
        whole = [(at, value) for at, value in each.values if at.topic not in seen.compacted]
        there = [value for _, value in whole if value in places]
        if 0 < len(there) < len(whole) and each.outcome is not Outcome.COMMITTED:
            yield f"torn: of {[value for _, value in whole]} only {there} are there"


def _invented_or_doubled(seen: Observed, places: Places) -> Iterable[str]:
    exact = {value: each.is_exact for each in seen.sent for _, value in each.values}
    for value, where in places.items():
        if value not in exact:
            yield f"invented: {value} at {where[0]} was never sent"
        elif len(where) > 1 and exact[value]:
            yield f"doubled: {value} is at {where}"


def _moved(seen: Observed, places: Places) -> Iterable[str]:
    for each in seen.sent:
        for partition, value in each.values:
            if value not in each.offsets or value not in places:
                continue
            told = (partition, each.offsets[value])
            if told not in places[value]:
                yield f"moved: {value} was answered at {told}, and is at {places[value]}"


def _out_of_order(seen: Observed, places: Places) -> Iterable[str]:
    last: dict[tuple[str, TopicPartition], tuple[int, Value]] = {}
    for each in seen.sent:
        for partition, value in each.values if each.is_exact else ():
            for _, offset in places.get(value, ()):
                before = last.get((each.writer, partition))
                if before is not None and offset < before[0]:
                    yield f"out of order: {value} stands before {before[1]} in {partition}"
                last[each.writer, partition] = (offset, value)


def _other_values(seen: Observed) -> Iterable[str]:
    held: dict[tuple[TopicPartition, int], Value] = {}
    reads = [(poll.partition, poll.records) for poll in seen.polls]
    for partition, records in [*reads, *seen.final.items()]:
        for offset, value in records:
            known = held.setdefault((partition, offset), value)
            if known != value:
                yield f"two values: {partition} has {known} and {value} at offset {offset}"


def _bad_polls(seen: Observed) -> Iterable[str]:
    goes_on: dict[tuple[str, TopicPartition], int] = {}
    for poll in seen.polls:
        offsets = [offset for offset, _ in poll.records]
        name = f"{poll.reader} in {poll.partition}"
        if offsets != sorted(set(offsets)) or any(each < poll.from_offset for each in offsets):
            yield f"poll goes back: {name} asked for {poll.from_offset}, and got {offsets}"
        expected = goes_on.get((poll.reader, poll.partition), poll.from_offset)
        if poll.from_offset != expected:
            yield f"poll jumps: {name} goes on at {poll.from_offset}, not at {expected}"
        goes_on[poll.reader, poll.partition] = poll.next_offset
        if poll.partition.topic in seen.compacted:
            continue
        given = set(offsets)
        records = seen.final.get(poll.partition, [])
        first = bisect_left(records, (poll.from_offset, ""))
        for offset, value in records[first : bisect_left(records, (poll.next_offset, ""))]:
            if offset not in given:
                yield f"skipped: {name} passed over {value} at offset {offset}"


def _marks_gone_back(seen: Observed) -> Iterable[str]:
    """Whoever asks is told no less than what anybody was told before."""
    told: dict[TopicPartition, list[Marks]] = defaultdict(list)
    for each in seen.marks:
        told[each.partition].append(each)
    for partition, marks in told.items():
        reached = _HighestBefore([(each.told_at, each.stable) for each in marks])
        for each in marks:
            if each.stable < (before := reached.by(each.asked_at)):
                yield f"mark goes back: {partition} was stable to {before}, now to {each.stable}"


def _older_than_acknowledged(seen: Observed) -> Iterable[str]:
    """The newest value of a key in a compacted topic is no older than the last acknowledged one."""
    newest: dict[str, int] = {}
    for partition, records in seen.final.items():
        for _, value in records if partition.topic in seen.compacted else ():
            key, _, number = value.partition("=")
            newest[key] = int(number)
    for each in seen.sent:
        for partition, value in each.values:
            if partition.topic in seen.compacted and each.outcome is Outcome.COMMITTED:
                key, _, number = value.partition("=")
                if newest.get(key, -1) < int(number):
                    yield f"older than acknowledged: {key} is {newest.get(key)}, not {number}"


def _unfenced(seen: Observed) -> Iterable[str]:
    for each in seen.sent:
        if each.outcome is not Outcome.COMMITTED or each.commit_at < 0:
            continue
        for newer in seen.opened:
            is_newer = newer.writer == each.writer and newer.instance > each.instance
            if is_newer and newer.at < each.commit_at:
                yield f"fenced writer got through: {each.values} behind instance {newer.instance}"


def _badly_relayed(seen: Observed) -> Iterable[str]:
    for writer, (source, target) in seen.relayed.items():
        wanted = Counter(_values_in(seen, source))
        done = Counter(each.removeprefix(f"{writer}:") for each in _values_in(seen, target))
        for value in sorted(wanted | done):
            if wanted[value] != done[value]:
                yield (
                    f"badly relayed: {value} is {wanted[value]} times in {source} "
                    f"and {done[value]} times in {target}"
                )


def _values_in(seen: Observed, topic: str) -> Iterable[Value]:
    for partition, records in seen.final.items():
        if partition.topic == topic:
            yield from (value for _, value in records)


def _circular(seen: Observed) -> Iterable[str]:
    """A transaction that reads what was made from its own writes (G1c)."""
    writer_of = {value: at for at, each in enumerate(seen.sent) for _, value in each.values}
    sources = {
        at: {writer_of[value] for value in each.reads if value in writer_of}
        for at, each in enumerate(seen.sent)
    }
    done, under_way = set[int](), set[int]()

    def is_in_circle(at: int) -> bool:
        if at in done:
            return False
        if at in under_way:
            return True
        under_way.add(at)
        if any(is_in_circle(each) for each in sources[at]):
            return True
        under_way.discard(at)
        done.add(at)
        return False

    for at, each in enumerate(seen.sent):
        if is_in_circle(at):
            yield f"circle: {each.values} was made from itself"
            return


def _group_offsets_gone_back(seen: Observed) -> Iterable[str]:
    """A group's offset never goes back: what was committed before somebody asks, he finds."""
    for at, commits in _commits_of_groups(seen).items():
        group, partition = at
        taken = _HighestBefore([(each.told_at, each.offset) for each in commits])
        name = f"{group} in {partition}"
        for each in commits:
            if each.offset < (before := taken.by(each.asked_at)):
                yield f"group offset goes back: {name} from {before} to {each.offset}"
        for start in seen.group_starts:
            is_here = (start.group, start.partition) == at
            if is_here and start.offset < (before := taken.by(start.at)):
                yield f"group reads again: {name} begins at {start.offset}, behind {before}"
        if (last := seen.group_final.get(at, -1)) < (before := taken.by(seen.place())):
            yield f"group offset is lost: {name} is {last}, {before} was taken"


def _commits_of_groups(
    seen: Observed,
) -> Mapping[tuple[str, TopicPartition], list[GroupCommit]]:
    found: dict[tuple[str, TopicPartition], list[GroupCommit]] = defaultdict(list)
    for each in seen.group_commits:
        found[each.group, each.partition].append(each)
    return found


class _HighestBefore:
    """The highest offset that was known at a place in the history."""

    def __init__(self, told: Iterable[tuple[int, int]]) -> None:
        self._places, self._highest = list[int](), list[int]()
        for place, offset in sorted(told):
            self._places.append(place)
            self._highest.append(max(offset, self._highest[-1] if self._highest else -1))

    def by(self, place: int) -> int:
        index = bisect_left(self._places, place)
        return self._highest[index - 1] if index else -1


def _unread_by_groups(seen: Observed) -> Iterable[str]:
    """Below a group's offset everything has been given to one of its members."""
    given: dict[tuple[str, TopicPartition], set[int]] = defaultdict(set)
    for poll in seen.polls:
        group = poll.reader.partition("/")[0]
        given[group, poll.partition].update(offset for offset, _ in poll.records)
    for (group, partition), reached in seen.group_final.items():
        for offset, value in seen.final.get(partition, ()):
            if offset < reached and offset not in given[group, partition]:
                yield f"unread: {group} passed over {value} at {partition}, offset {offset}"
