"""Two sides' events, field by field: what is different, and whether that is permitted."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from tests.debezium.events import Event, Spelled, Told
from tests.debezium.headwater_capture import REJECTED
from tests.debezium.values import TABLES

MISSING = "(not there)"
PROCESSING = {"ts_ms", "ts_us", "ts_ns"}
RUNS = {
    "ts_ms", "ts_us", "ts_ns", "txId", "lsn", "sequence", "db", "gtid", "file", "pos", "thread",
}  # fmt: skip
"""Of the `source` block what another run of the same history has otherwise."""

Found = tuple[tuple[str, ...], Any, Any]
"""Where two sides differ, and how."""


class Difference(NamedTuple):
    mode: str
    topic: str
    path: tuple[str, ...]
    ours: Any
    theirs: Any
    is_snapshot: bool

    @property
    def table(self) -> str:
        return self.topic.rpartition(".")[2]

    @property
    def type(self) -> str:
        """Of the column of one of the tables of types."""
        column = next((part for part in self.path if part[:1] == "c" and part[1:].isdigit()), "")
        return TABLES[self.table][int(column[1:])].type if self.table in TABLES and column else ""


def differences(
    mode: str, ours: Mapping[str, Told], theirs: Mapping[str, Told], *, is_same_run: bool
) -> Iterator[Difference]:
    """`is_same_run`: places in the write-ahead log, transactions and times can be compared, too."""
    for topic in sorted(ours.keys() | theirs.keys()):
        mine, other = (side.get(topic, Told([], [])) for side in (ours, theirs))
        if topic.endswith(".transaction"):
            if not is_same_run:
                continue
            mine, other = _of_both(mine, other), _of_both(other, mine)
        if len(mine.events) != len(other.events):
            counts = (len(mine.events), len(other.events))
            yield Difference(mode, topic, ("events",), *counts, False)
            continue
        pairs = zip(*(_comparable(side.events, is_same_run) for side in (mine, other)), strict=True)
        for left, right in pairs:
            for path, a, b in _between(left, right):
                yield Difference(mode, topic, path, a, b, _is_row(right))
        for path, a, b in _between_schemas(mine, other):
            yield Difference(mode, topic, path, a, b, False)


def _between(ours: Event, theirs: Event) -> Iterator[Found]:
    if REJECTED in (ours.value or ()):
        yield ("value",), REJECTED, None
    else:
        yield from _unlike((), ours._asdict(), theirs._asdict())


def _between_schemas(ours: Told, theirs: Told) -> Iterator[Found]:
    """The last ones: Debezium makes new, equal ones after a truncate, and others in between."""
    pairs = zip(ours.schemas[-1:], theirs.schemas[-1:], strict=False)
    for (my_key, my_value), (key, value) in pairs:
        yield from _unlike(("key schema",), _by_field(my_key), _by_field(key))
        yield from _unlike(("schema",), _by_field(my_value), _by_field(value))


def _of_both(told: Told, other: Told) -> Told:
    """Beginnings and ends of transactions that the other side tells of: Debezium's run ends before
    the end of the last."""
    known = {_name(each) for each in other.events}
    return told._replace(events=[each for each in told.events if _name(each) in known])


def _name(event: Event) -> tuple[str, str]:
    return event.value["status"], event.key["id"].partition(":")[0]


def _comparable(events: Sequence[Event], is_same_run: bool) -> Iterator[Event]:
    """Without the time of processing, and of another run without what only that run has."""
    transactions: dict[Any, str] = {}
    for event in _in_order(events):
        value = event.value
        if isinstance(value, dict):
            value = {name: each for name, each in value.items() if name not in PROCESSING}
            source = value.get("source")
            if value.get("transaction") and not is_same_run:
                value["transaction"] = value["transaction"] | {"id": ""}
            if source is not None and not is_same_run:
                # A snapshot bears the number of a transaction that is yet to come.
                is_streamed = value["op"] != "r"
                name = source["txId"] if "txId" in source else source["gtid"]
                number = is_streamed and transactions.setdefault(name, str(len(transactions)))
                rest = {name: each for name, each in source.items() if name not in RUNS}
                value["source"] = rest | {"transaction": number}
        yield event._replace(value=value)


def _in_order(events: Sequence[Event]) -> list[Event]:
    """Rows of a snapshot by their keys: which of them is read first is nobody's promise."""
    rows = [each for each in events if _is_row(each)]
    others = [each for each in events if not _is_row(each)]
    return [*sorted(rows, key=lambda each: repr(each.key)), *others]


def _is_row(event: Event) -> bool:
    return isinstance(event.value, dict) and event.value.get("op") == "r"


def _by_field(schema: Any) -> Any:
    """Lists of fields by their names, so that a missing one is one difference."""
    if isinstance(schema, dict):
        return {
            name: {f"{each['field']}": _by_field(each) for each in part}
            if name == "fields"
            else _by_field(part)
            for name, part in schema.items()
        }
    return schema


def _unlike(path: tuple[str, ...], a: Any, b: Any) -> Iterator[Found]:
    if isinstance(a, Spelled) or isinstance(b, Spelled):
        if a != b:
            yield path, a, b
    elif isinstance(a, dict) and isinstance(b, dict):
        shared = [name for name in a if name in b]
        if shared != [name for name in b if name in a]:
            yield (*path, "order"), list(a), list(b)
        for name in sorted(a.keys() | b.keys()):
            yield from _unlike((*path, name), a.get(name, MISSING), b.get(name, MISSING))
    elif a != b or type(a) is not type(b):
        yield path, a, b
