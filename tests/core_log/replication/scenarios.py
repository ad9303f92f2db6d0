"""Plays a text scenario on one replica, the nodes of a quorum or the controller: a line is a step,
the indented ones its effects."""

from pathlib import Path

from headwater.core_log.foundation.errors import CorruptLog
from headwater.core_log.replication.follower import EpochEnd, Follower, find_divergence
from headwater.core_log.replication.leader import UNKNOWN, InSyncProposal, Leader
from headwater.core_log.replication.metadata_records import Assignment
from headwater.core_log.storage.leader_epochs import EpochCache
from tests.core_log.replication.election_scenarios import ElectionScenario
from tests.core_log.replication.quorum_scenarios import QuorumScenario
from tests.fakes import MemoryFiles


def ids(text: str) -> frozenset[int]:
    return frozenset(map(int, text.split(",")))


def shown(brokers: frozenset[int]) -> str:
    return ",".join(map(str, sorted(brokers)))


def pair(text: str) -> tuple[int, int]:
    first, second = text.split(",")
    return int(first), int(second)


def assignment(words: list[str]) -> Assignment:
    """Of `A,B adding A removing B`."""
    given = dict(zip(words[1::2], words[2::2], strict=True))
    adding, removing = (
        tuple(sorted(ids(given[name]))) if name in given else () for name in ("adding", "removing")
    )
    return Assignment(tuple(map(int, words[0].split(","))), adding, removing)


class LeaderScenario:
    """Steps: `leader ID epoch N replicas A,B in_sync A,B [KEY N]...`, `append END`, `disk OFFSET`,
    `fetch ID from OFFSET at MS [life BROKER_EPOCH] [start OFFSET] [marks CLEANED,DROPPED]
    [proved N]`, `tick at MS`, `delete to OFFSET`, `mark CLEANED,DROPPED` (of compaction),
    `question N` (only a leader that is not replaced may answer it), `controller writes in_sync A,B
    as N`,
    `controller writes A,B [adding A,B] [removing A,B] in_sync A,B as N`,
    `controller refuses`, `min.insync.replicas is N`,
    `elected again epoch N in_sync A,B as N at MS`.
    """

    def __init__(self, line: str) -> None:
        words = line.split()
        given = dict(zip(words[::2], words[1::2], strict=True))
        self.proposal: InSyncProposal | None = None
        self.start_offset, self.marks, self.question = 0, (0, 0), 0
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
        proposal = self.step(line.split())
        effects = [self.state()]
        if proposal is not None:
            self.proposal = proposal
            lives = {each: of for each, of in proposal.broker_epochs.items() if of != UNKNOWN}
            named = "".join(f" {each} of life {of}" for each, of in sorted(lives.items()))
            effects.append(f"proposes in_sync={shown(proposal.in_sync)}{named}")
        return effects

    def step(self, words: list[str]) -> InSyncProposal | None:
        leader = self.leader
        match words:
            case ["append", end]:
                leader.on_append(int(end))
            case ["disk", offset]:
                leader.on_durable(int(offset))
            case ["fetch", follower, "from", offset, "at", now, *said]:
                return self.fetch(int(follower), int(offset), int(now), said)
            case ["tick", "at", now]:
                return leader.on_tick(int(now))
            case ["delete", "to", offset]:
                self.start_offset = int(offset)
            case ["mark", marks]:
                self.marks = pair(marks)
            case ["question", number]:
                self.question = int(number)
            case _:
                self.obey(words)
        return None

    def obey(self, words: list[str]) -> None:
        """The controller has decided something."""
        leader = self.leader
        match words:
            case ["controller", "writes", *moved, "in_sync", brokers, "as", epoch]:
                self.write(brokers, epoch, assignment(moved) if moved else leader.assignment)
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
                raise ValueError(f"unknown step: {' '.join(words)}")

    def fetch(
        self, follower: int, offset: int, now: int, words: list[str]
    ) -> InSyncProposal | None:
        said = dict(zip(words[::2], words[1::2], strict=True))
        return self.leader.on_follower_fetch(
            follower,
            offset,
            now,
            start_offset=int(said.get("start", 0)),
            broker_epoch=int(said.get("life", UNKNOWN)),
            marks=pair(said.get("marks", "0,0")),
            start_least=self.start_offset,
            marks_least=self.marks,
            proved=int(said.get("proved", 0)),
        )

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
        if self.start_offset:
            is_over = leader.has_deleted(self.start_offset)
            marks.append(f"deleted to {self.start_offset}" if is_over else "deletion is not over")
        if self.marks != (0, 0):
            may = "may compact to" if leader.has_announced(self.marks) else "does not compact to"
            marks.append(f"{may} {self.marks[0]},{self.marks[1]}")
            marks.append(f"agreed_to={leader.agreed_to(self.marks[0])}")
        if self.question:
            may = "answers" if leader.has_proved(self.question) else "does not answer"
            marks.append(f"{may} question {self.question}")
        return " ".join(marks)


class FollowerScenario:
    """Steps: `follower ID of ID epoch N`, `holds EPOCH from OFFSET to OFFSET`, `disk OFFSET`,
    `leader says high_watermark N`, `leader says divergence after epoch N at OFFSET`,
    `leader starts at OFFSET`, `leader is ID epoch N`, `unclean elections allowed`,
    `leads in epoch N` (and writes nothing), `asked after epoch N from OFFSET` (by a reader while it
    leads), `leader says agreed_to OFFSET` (about compaction).
    """

    def __init__(self, line: str) -> None:
        _, broker, _, leader, _, epoch = line.split()
        self.begin(0)
        self.has_led = False
        self.follower = Follower(
            broker_id=int(broker), leader_id=int(leader), leader_epoch=int(epoch)
        )

    def begin(self, end_offset: int) -> None:
        self.epochs = EpochCache(MemoryFiles(), Path("/log"))
        self.end(end_offset)

    def end(self, end_offset: int) -> None:
        self.epochs.log_end = lambda: end_offset

    def play(self, line: str) -> list[str]:
        return [*self.step(line.split()), self.state()]

    def step(self, words: list[str]) -> list[str]:
        follower = self.follower
        match words:
            case ["holds", epoch, "from", start, "to", end]:
                self.epochs.assign(int(epoch), int(start))
                self.end(int(end))
                follower.on_append(int(end), int(epoch))
            case ["disk", offset]:
                follower.on_durable(int(offset))
            case ["leads", "in", "epoch", epoch]:
                self.epochs.assign(int(epoch), follower.end_offset)
                self.has_led = True
            case ["asked", "after", "epoch", epoch, "from", offset]:
                return self.answer(int(epoch), int(offset))
            case ["unclean", "elections", "allowed"]:
                follower.allows_unclean = True
            case _:
                return self.hear(words)
        return []

    def hear(self, words: list[str]) -> list[str]:
        """News of the leader."""
        follower = self.follower
        match words:
            case ["leader", "says", "high_watermark", offset]:
                follower.on_high_watermark(int(offset))
            case ["leader", "says", "agreed_to", offset]:
                follower.on_agreed(int(offset))
            case ["leader", "says", "divergence", "after", "epoch", epoch, "at", end]:
                return self.diverge(EpochEnd(int(epoch), int(end)))
            case ["leader", "starts", "at", offset]:
                if follower.on_leader_start(int(offset)):
                    self.begin(int(offset))
                    return [f"starts over at {offset}"]
            case ["leader", "is", leader, "epoch", epoch]:
                follower.on_leader(int(leader), int(epoch))
            case _:
                raise ValueError(f"unknown step: {' '.join(words)}")
        return []

    def diverge(self, leaders: EpochEnd) -> list[str]:
        try:
            offset = self.follower.on_diverging(leaders, self.epochs)
        except CorruptLog as error:
            return [f"refuses: {error.problem}"]
        self.epochs.truncate_to(offset)
        self.end(offset)
        self.follower.on_truncated(offset, self.epochs.latest)
        return [f"truncates to {offset}"]

    def answer(self, epoch: int, offset: int) -> list[str]:
        found = find_divergence(self.epochs, last_fetched_epoch=epoch, fetch_offset=offset)
        if found is None:
            return ["the reader has a prefix"]
        return [f"the reader's log parts after epoch {found.epoch} at {found.end_offset}"]

    def state(self) -> str:
        follower, fetch = self.follower, self.follower.next_fetch()
        marks = f"end={follower.end_offset} disk={follower.durable_offset}"
        ask = "waits for its disk"
        if fetch is not None:
            ask = f"asks from {fetch.offset} after epoch {fetch.last_fetched_epoch}"
            ask += f" in epoch {fetch.leader_epoch}"
        if follower.agreed_to:
            marks += f" agreed_to={follower.agreed_to}"
        if self.has_led:
            marks += (
                f" epochs={','.join(f'{e.epoch}@{e.start_offset}' for e in self.epochs.starts)}"
            )
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
