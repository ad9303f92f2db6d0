"""Plays a text scenario on one replica, the nodes of a quorum or the controller: a line is a step,
the indented ones its effects."""

from dataclasses import dataclass, field
from itertools import pairwise

from headwater.core_log.foundation.errors import CorruptLog
from headwater.core_log.replication.divergence import EpochEnd
from headwater.core_log.replication.follower import Follower
from headwater.core_log.replication.leader import InSyncProposal, Leader
from headwater.core_log.replication.metadata_records import Assignment
from tests.core_log.replication.election_scenarios import ElectionScenario
from tests.core_log.replication.quorum_scenarios import QuorumScenario


@dataclass
class Epochs:
    """Where each leader epoch of a log began."""

    starts: list[tuple[int, int]] = field(default_factory=list)
    end_offset: int = 0

    def end_offset_for(self, epoch: int) -> tuple[int, int]:
        for (known, _), (_, next_start) in pairwise([*self.starts, (-1, self.end_offset)]):
            if known == max((each for each, _ in self.starts if each <= epoch), default=-1):
                return known, next_start
        return -1, -1

    def note(self, epoch: int, start_offset: int) -> None:
        if not self.starts or self.starts[-1][0] < epoch:
            self.starts.append((epoch, start_offset))

    def truncate(self, end_offset: int) -> int:
        """Returns the epoch of the last record that stays."""
        self.starts = [each for each in self.starts if each[1] < end_offset]
        self.end_offset = end_offset
        return self.starts[-1][0] if self.starts else -1


def ids(text: str) -> frozenset[int]:
    return frozenset(map(int, text.split(",")))


def shown(brokers: frozenset[int]) -> str:
    return ",".join(map(str, sorted(brokers)))


def assignment(words: list[str]) -> Assignment:
    """Of `A,B adding A removing B`."""
    given = dict(zip(words[1::2], words[2::2], strict=True))
    adding, removing = (
        tuple(sorted(ids(given[name]))) if name in given else () for name in ("adding", "removing")
    )
    return Assignment(tuple(map(int, words[0].split(","))), adding, removing)


class LeaderScenario:
    """Steps: `leader ID epoch N replicas A,B in_sync A,B [KEY N]...`, `append END`, `disk OFFSET`,
    `fetch ID from OFFSET at MS`, `tick at MS`, `controller writes in_sync A,B as N`,
    `controller writes A,B [adding A,B] [removing A,B] in_sync A,B as N`,
    `controller refuses`, `min.insync.replicas is N`,
    `elected again epoch N in_sync A,B as N at MS`.
    """

    def __init__(self, line: str) -> None:
        words = line.split()
        given = dict(zip(words[::2], words[1::2], strict=True))
        self.proposal: InSyncProposal | None = None
        self.leader = Leader(
            broker_id=int(given["leader"]),
            leader_epoch=int(given["epoch"]),
            assignment=Assignment(tuple(sorted(ids(given["replicas"])))),
            in_sync=ids(given["in_sync"]),
            end_offset=int(given.get("end", 0)),
            durable_offset=int(given.get("disk", 0)),
            high_watermark=int(given.get("high_watermark", 0)),
            min_in_sync=int(given.get("min", 1)),
        )

    def play(self, line: str) -> list[str]:
        leader, proposal = self.leader, None
        match line.split():
            case ["append", end]:
                leader.on_append(int(end))
            case ["disk", offset]:
                leader.on_durable(int(offset))
            case ["fetch", follower, "from", offset, "at", now]:
                proposal = leader.on_follower_fetch(int(follower), int(offset), int(now))
            case ["tick", "at", now]:
                proposal = leader.on_tick(int(now))
            case ["controller", "writes", *words, "in_sync", brokers, "as", epoch]:
                self.write(brokers, epoch, assignment(words) if words else leader.assignment)
            case ["min.insync.replicas", "is", number]:
                leader.on_min_in_sync(int(number))
            case ["controller", "refuses"]:
                assert self.proposal is not None
                leader.on_refused(self.proposal)
            case ["elected", "again", "epoch", epoch, "in_sync", brokers, "as", version, "at", now]:
                leader.on_epoch(
                    int(epoch),
                    ids(brokers),
                    int(version),
                    int(now),
                    min_in_sync=leader.min_in_sync,
                    assignment=leader.assignment,
                )
            case _:
                raise ValueError(f"unknown step: {line}")
        effects = [self.state()]
        if proposal is not None:
            self.proposal = proposal
            effects.append(f"proposes in_sync={shown(proposal.in_sync)}")
        return effects

    def write(self, in_sync: str, epoch: str, assigned: Assignment) -> None:
        low = self.leader.min_in_sync
        self.leader.on_in_sync(ids(in_sync), int(epoch), min_in_sync=low, assignment=assigned)

    def state(self) -> str:
        leader = self.leader
        marks = [
            f"end={leader.end_offset}",
            f"disk={leader.durable_offset}",
            f"high_watermark={leader.high_watermark}",
            f"in_sync={shown(leader.in_sync)}",
        ]
        if not leader.has_enough_in_sync:
            marks.append("too few in sync")
        if not leader.knows_latest:
            marks.append("latest unknown")
        return " ".join(marks)


class FollowerScenario:
    """Steps: `follower ID of ID epoch N`, `holds EPOCH from OFFSET to OFFSET`, `disk OFFSET`,
    `leader says high_watermark N`, `leader says divergence after epoch N at OFFSET`,
    `leader starts at OFFSET`, `leader is ID epoch N`, `unclean elections allowed`.
    """

    def __init__(self, line: str) -> None:
        _, broker, _, leader, _, epoch = line.split()
        self.epochs = Epochs()
        self.follower = Follower(
            broker_id=int(broker), leader_id=int(leader), leader_epoch=int(epoch)
        )

    def play(self, line: str) -> list[str]:
        follower, effects = self.follower, []
        match line.split():
            case ["holds", epoch, "from", start, "to", end]:
                self.epochs.note(int(epoch), int(start))
                self.epochs.end_offset = int(end)
                follower.on_append(int(end), int(epoch))
            case ["disk", offset]:
                follower.on_durable(int(offset))
            case ["leader", "says", "high_watermark", offset]:
                follower.on_high_watermark(int(offset))
            case ["leader", "says", "divergence", "after", "epoch", epoch, "at", end]:
                effects = self.diverge(EpochEnd(int(epoch), int(end)))
            case ["leader", "starts", "at", offset]:
                if follower.on_leader_start(int(offset)):
                    self.epochs = Epochs(end_offset=int(offset))
                    effects = [f"starts over at {offset}"]
            case ["leader", "is", leader, "epoch", epoch]:
                follower.on_leader(int(leader), int(epoch))
            case ["unclean", "elections", "allowed"]:
                follower.allows_unclean = True
            case _:
                raise ValueError(f"unknown step: {line}")
        return [*effects, self.state()]

    def diverge(self, leaders: EpochEnd) -> list[str]:
        try:
            offset = self.follower.on_diverging(leaders, self.epochs)
        except CorruptLog as error:
            return [f"refuses: {error.problem}"]
        self.follower.on_truncated(offset, self.epochs.truncate(offset))
        return [f"truncates to {offset}"]

    def state(self) -> str:
        follower, fetch = self.follower, self.follower.next_fetch()
        marks = f"end={follower.end_offset} disk={follower.durable_offset}"
        ask = "waits for its disk"
        if fetch is not None:
            ask = f"asks from {fetch.offset} after epoch {fetch.last_fetched_epoch}"
            ask += f" in epoch {fetch.leader_epoch}"
        return f"{marks} high_watermark={follower.high_watermark} {ask}"


Scenario = LeaderScenario | FollowerScenario | QuorumScenario | ElectionScenario
KINDS: dict[str, type[Scenario]] = {
    "leader": LeaderScenario,
    "follower": FollowerScenario,
    "voters": QuorumScenario,
    "brokers": ElectionScenario,
}


def replay(text: str) -> str:
    """The scenario again, with the effects as they are now. Lines beginning with # are prose."""
    played: list[str] = []
    scenario: Scenario | None = None
    for line in text.splitlines():
        if not line or line.startswith("#"):
            played.append(line)
        elif not line.startswith(" "):
            played.append(line)
            if scenario is None and line.split()[0] in KINDS:
                scenario = KINDS[line.split()[0]](line)
                played.append(f"  {scenario.state()}")
                continue
            assert scenario is not None, "a scenario begins with its replica, voters or brokers"
            played += [f"  {effect}" for effect in scenario.play(line)]
    return "\n".join(played) + "\n"
