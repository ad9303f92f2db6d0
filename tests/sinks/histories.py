"""A table's changes as chance writes them, and what each way of keeping it makes of them, change
by change: an independent truth for however the log is sliced."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from random import Random
from typing import Any

import pyarrow as pa

from tests.slices import COMMITTED_US, Change, ScriptedTopic, schema_of

SHOPS = schema_of(
    "public.orders", key=("shop", "id"), shop=pa.string(), id=pa.int32(), note=pa.string()
)
KEPT = ("mirror", "ignore", "soft_delete", "append", "scd2")
"""The modes, and `deletes: ignore`."""
SECOND_US = 1_000_000
LATER_US = 1 << 62

Row = tuple[Any, ...]


def settings_of(kept: str) -> dict[str, Any]:
    """What of a sink's settings keeps every table so."""
    if kept == "ignore":
        return {"deletes": "ignore"}
    return {"tables": {"*": {"mode": kept}}}


@dataclass
class Truth:
    """Told change by change; `rows` are in no order, moments in microseconds."""

    kept: str
    states: dict[Row, list[Any]] = field(default_factory=dict)
    """Key to note and moment of the delete, or to note and moment of the change."""
    ended: list[Row] = field(default_factory=list)
    notes: dict[Row, Any] = field(default_factory=dict)
    """Of the rows that the source has."""

    def take(self, changes: Sequence[Change], *, committed_us: int) -> None:
        for letter, row in changes:
            key = row.get("shop"), row.get("id")
            if letter == "R":
                if self.notes.get(key) == row["note"] and self.kept in ("append", "scd2"):
                    continue
                letter = "r"
            self._note(letter, key, row.get("note"))
            if self.kept == "append":
                note = row.get("note")
                self.ended.append((row.get("shop"), row.get("id"), note, letter, committed_us))
            elif letter == "t":
                for key in list(self.states):
                    self._delete(key, committed_us)
            elif letter == "d":
                self._delete((row["shop"], row["id"]), committed_us)
            else:
                self._put((row["shop"], row["id"]), row["note"], committed_us)

    def rows(self) -> list[Row]:
        if self.kept == "scd2":
            left = [(*key, note, since, None) for key, (note, since) in self.states.items()]
            return sorted([*self.ended, *left], key=repr)
        width = 2 if self.kept == "soft_delete" else 1
        left = [(*key, *state[:width]) for key, state in self.states.items()]
        return sorted([*self.ended, *left], key=repr)

    def _note(self, letter: str, key: Row, note: Any) -> None:
        if letter == "t":
            self.notes.clear()
        elif letter == "d":
            self.notes.pop(key, None)
        else:
            self.notes[key] = note

    def _put(self, key: Row, note: str, committed_us: int) -> None:
        if self.kept == "scd2":
            self._end(key, committed_us)
            self.states[key] = [note, committed_us]
        else:
            self.states[key] = [note, None]

    def _delete(self, key: Row, committed_us: int) -> None:
        if self.kept == "mirror":
            self.states.pop(key, None)
        elif self.kept == "soft_delete" and key in self.states:
            self.states[key][1] = self.states[key][1] or committed_us
        elif self.kept == "scd2":
            self._end(key, committed_us)

    def _end(self, key: Row, committed_us: int) -> None:
        if key in self.states:
            note, since = self.states.pop(key)
            if since < committed_us:
                self.ended.append((*key, note, since, committed_us))


def append_chance(
    topic: ScriptedTopic, truth: Truth, chance: Random, *, at: int, is_clock_wrong: bool = False
) -> None:
    """A transaction of a few changes, sometimes with a truncate before, amid or behind them. One
    key in a few is deleted and made again, or given another key."""
    second = chance.randrange(12) if is_clock_wrong else at // 2  # two may be of one moment
    committed_us = COMMITTED_US + second * SECOND_US
    for _ in range(chance.choice((1, 1, 1, 2))):
        if chance.random() < 0.1:
            _append(topic, truth, [("t", {})], committed_us)
        changes: list[Change] = []
        for _ in range(chance.randint(1, 9)):
            changes += _changes(chance)
        _append(topic, truth, changes, committed_us)
        if chance.random() < 0.3:
            _append(topic, truth, _read_again(truth, chance), committed_us)


def _read_again(truth: Truth, chance: Random) -> list[Change]:
    """All rows, a few of which have become others without anybody saying so."""
    return [
        (
            "R",
            {
                "shop": shop,
                "id": id,
                "note": str(chance.random()) if chance.random() < 0.2 else note,
            },
        )
        for (shop, id), note in truth.notes.items()
    ]


def _changes(chance: Random) -> list[Change]:
    key: dict[str, Any] = {"shop": chance.choice(["a", "é", "zz"]), "id": chance.randint(-2, 4)}
    note = str(chance.random())
    made: list[Change] = [(chance.choice("cu"), {**key, "note": note})]
    gone: list[Change] = [("d", key)]
    other = {**key, "id": key["id"] + 1, "note": note}
    return chance.choice([made, made, gone, made + gone, gone + made, [*gone, ("c", other)]])


def _append(
    topic: ScriptedTopic, truth: Truth, changes: Sequence[Change], committed_us: int
) -> None:
    topic.append(SHOPS, *changes, committed_us=committed_us)
    truth.take(changes, committed_us=committed_us)


def check_versions(rows: Sequence[Row], truth: Truth) -> None:
    """Those of a key follow each other, and the last ones are the rows of the source."""
    for key in {row[:2] for row in rows}:
        spans = sorted(
            (row[3], LATER_US if row[4] is None else row[4]) for row in rows if row[:2] == key
        )
        assert all(since < until for since, until in spans), (key, spans)
        assert all(until <= since for (_, until), (since, _) in pairwise(spans)), (key, spans)
    assert {row[:2]: row[2] for row in rows if row[4] is None} == truth.notes


def shown(kept: str, found: Sequence[dict[str, Any]]) -> list[Row]:
    """The rows of a target, our own columns among them, as `Truth` tells them."""
    own = {
        "soft_delete": ("deleted_at",),
        "append": ("op", "committed_at"),
        "scd2": ("valid_from", "valid_to"),
    }.get(kept, ())
    names = ["shop", "id", "note", *(f"_headwater_{name}" for name in own)]
    return sorted((tuple(_plain(row[name]) for name in names) for row in found), key=repr)


def _plain(value: Any) -> Any:
    if not hasattr(value, "tzinfo"):
        return value
    return pa.scalar(value.replace(tzinfo=None), pa.timestamp("us")).cast(pa.int64()).as_py()
