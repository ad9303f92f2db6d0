"""Events of either side in one form, and what a run of Debezium's is kept as."""

import gzip
import json
import re
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

HEADERS = re.compile(r" (?=__debezium\.|$)")
RECORDED = Path(__file__).parent / "recorded"


class Spelled(NamedTuple):
    """A number of JSON with a point or an exponent, as it was spelled."""

    text: str


class Event(NamedTuple):
    key: Any
    value: Any
    """None for a tombstone."""
    headers: Mapping[str, Any]


class Told(NamedTuple):
    """What one side said of one topic."""

    events: list[Event]
    schemas: list[tuple[Any, Any]]
    """Of key and value, one pair wherever they changed."""


def parsed(text: str | None) -> Any:
    if not text:
        return None
    return json.loads(text, parse_float=Spelled, object_pairs_hook=_ordered)


def _ordered(pairs: list[tuple[str, Any]]) -> Any:
    """The order of fields counts: consumers of Avro and of flat files see it."""
    return dict(pairs)


def debezium_told(lines: list[str]) -> dict[str, Told]:
    told: dict[str, Told] = defaultdict(lambda: Told([], []))
    for line in lines:
        fields = line.split("\t")
        if fields[0] == "schema":
            key, value = (parsed(text) for text in fields[2:])
            if value["payload"].get("op") != "t":  # which has no key, and so no schema of one
                told[fields[1]].schemas.append((key and key["schema"], value["schema"]))
        elif len(fields) == 4:
            topic, key, value, headers = fields
            pairs = (each.split("=", 1) for each in HEADERS.split(headers) if each)
            found = {name: parsed(text) for name, text in pairs}
            told[topic].events.append(Event(parsed(key), parsed(value), found))
    return dict(told)


def read_run(path: Path) -> dict[str, Told]:
    return debezium_told(path.read_text().split("\n"))


def keep_run(path: Path, mode: str) -> None:
    RECORDED.mkdir(exist_ok=True)
    (RECORDED / f"{mode}.gz").write_bytes(gzip.compress(path.read_bytes(), 9, mtime=0))


def kept_run(mode: str) -> dict[str, Told]:
    text = gzip.decompress((RECORDED / f"{mode}.gz").read_bytes()).decode()
    return debezium_told(text.split("\n"))
