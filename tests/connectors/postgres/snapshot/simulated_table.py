"""A table of PostgreSQL's in memory: versions of rows, snapshots, and commits that are streamed
before, or long after, others can see them."""

from dataclasses import dataclass, field
from random import Random

from headwater.connectors.postgres.server.lsn import PgSnapshot

PAGES, KEYS = 12, 30


@dataclass
class Version:
    key: int
    value: int
    page: int
    xmin: int
    xmax: int | None = None


@dataclass
class Change:
    key: int
    value: int | None
    is_published: bool


@dataclass
class Transaction:
    xid: int
    changes: list[Change] = field(default_factory=list)
    is_committed: bool = False
    is_slow: bool = False
    """It waits for a standby before others see it, while it is streamed at once."""


class SimulatedTable:
    def __init__(self, random: Random, *, first_xid: int) -> None:
        self.random = random
        self.versions: list[Version] = []
        self.running: dict[int, Transaction] = {}
        """Those that others do not see yet; they hold their locks."""
        self.stream: list[Transaction] = []
        self.is_published = True
        self._next_xid = first_xid
        self._over: set[int] = set()
        self._value = 0
        self._highest_over = first_xid - 1

    def step(self) -> None:
        """Anything that users may do."""
        writing = [each for each in self.running.values() if not each.is_committed]
        choice = self.random.random()
        if choice < 0.25 or not writing:
            is_slow = self.random.random() < 0.2
            self.running[self._next_xid] = Transaction(self._next_xid, is_slow=is_slow)
            self._next_xid += 1
        elif choice < 0.7:
            self._write(self.random.choice(writing))
        elif choice < 0.75:
            self._abort(self.random.choice(writing))
        else:
            self._commit(self.random.choice(writing))
        for each in [each for each in self.running.values() if each.is_committed]:
            if self.random.random() < (0.02 if each.is_slow else 0.4):
                self._show(each)

    def settle(self) -> None:
        for each in list(self.running.values()):
            if not each.is_committed:
                self._commit(each)
            self._show(each)

    def snapshot(self) -> PgSnapshot:
        xmax = self._highest_over + 1
        running = frozenset(xid for xid in self.running if xid < xmax)
        return PgSnapshot(min(running, default=xmax), xmax, running)

    def seen_by(self, snapshot: PgSnapshot) -> list[Version]:
        return [
            each
            for each in self.versions
            if _sees(snapshot, each.xmin) and not (each.xmax and _sees(snapshot, each.xmax))
        ]

    def rows(self) -> dict[int, int]:
        return {each.key: each.value for each in self.seen_by(self.snapshot())}

    def writers(self) -> set[int]:
        """Transactions that hold a lock on the table."""
        return {each.xid for each in self.running.values() if each.changes}

    def _write(self, transaction: Transaction) -> None:
        key = self.random.randrange(KEYS)
        current = next(
            (each for each in self.versions if each.key == key and each.xmax is None), None
        )
        if current is not None and current.xmin in self.running.keys() - {transaction.xid}:
            return  # somebody holds the row
        is_gone = self.random.random() < 0.2
        if current is None and (is_gone or self._is_held(key, transaction.xid)):
            return
        if current is not None:
            current.xmax = transaction.xid
        value: int | None = None
        if not is_gone:
            self._value += 1
            value = self._value
            page = self.random.randrange(PAGES)
            self.versions.append(Version(key, value, page, transaction.xid))
        transaction.changes.append(Change(key, value, self.is_published))

    def _is_held(self, key: int, xid: int) -> bool:
        """Whether somebody else deleted the row, and may yet take that back."""
        return any(
            each.key == key and each.xmax in self.running.keys() - {xid} for each in self.versions
        )

    def _commit(self, transaction: Transaction) -> None:
        transaction.is_committed = True
        self.stream.append(transaction)

    def _show(self, transaction: Transaction) -> None:
        del self.running[transaction.xid]
        self._highest_over = max(self._highest_over, transaction.xid)

    def _abort(self, transaction: Transaction) -> None:
        xid = transaction.xid
        self.versions = [each for each in self.versions if each.xmin != xid]
        for each in self.versions:
            if each.xmax == xid:
                each.xmax = None
        self._show(transaction)


def _sees(snapshot: PgSnapshot, xid: int) -> bool:
    return xid < snapshot.xmax and xid not in snapshot.running
