"""What a run that is over has not delivered whole: which tables, and why (decision D5)."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from headwater.pipelines.reports import VERIFY, TaskState
from headwater.pipelines.terminal.output import format_count, printable

SHOWN_MAX = 20
"""Tables that are named in one line; --json names all of them."""
LEFT_OUT = "left out"


@dataclass(frozen=True, slots=True)
class Undelivered:
    """One table, and what kept it from one target, or from all of them."""

    pipeline: str
    table: str
    """Empty where nothing is known of the tables of the unit."""
    unit: str
    state: str
    """Of the unit, or of the table in it; `left out` of what the source does not capture."""
    reason: str

    def as_json(self) -> dict[str, str]:
        return asdict(self)


def find_undelivered(snapshot: Mapping[str, Any]) -> list[Undelivered]:
    """By a status snapshot of pipelines that were to come to their end."""
    return [
        each
        for name, pipeline in snapshot["pipelines"].items()
        for unit, facts in pipeline["units"].items()
        if unit != VERIFY
        for each in _of_unit(name, unit, facts, pipeline["tables"])
    ]


def _of_unit(
    pipeline: str, unit: str, facts: Mapping[str, Any], tables: Mapping[str, Any]
) -> Iterator[Undelivered]:
    for remark in facts["remarks"].values():
        for table in remark["left_out"]:
            reason = "; ".join(filter(None, (remark["problem"], remark["cure"])))
            yield Undelivered(pipeline, table, unit, LEFT_OUT, reason)
    if facts["state"] != TaskState.DONE.value:
        for table in tables or ("",):
            yield Undelivered(pipeline, table, unit, facts["state"], facts["reason"])
        return
    for table, told in tables.items():
        own = told["units"].get(unit)
        if own is not None and own["state"] != TaskState.DONE.value:
            yield Undelivered(pipeline, table, unit, own["state"], own["reason"])


def undelivered_lines(found: Sequence[Undelivered]) -> list[str]:
    """What shares its reason shares a line."""
    groups: dict[tuple[str, str, str, str], list[str]] = {}
    for each in found:
        key = (each.pipeline, each.unit, each.state, each.reason)
        groups.setdefault(key, []).append(each.table)
    return [
        f"{printable(pipeline)}/{printable(unit)}: {_name(names)} {state}"
        + (f": {printable(' '.join(reason.split()))}" if reason else "")
        for (pipeline, unit, state, reason), names in groups.items()
    ]


def _name(names: Sequence[str]) -> str:
    known = [printable(name) for name in names if name]
    if not known:
        return "all tables"
    shown = ", ".join(known[:SHOWN_MAX])
    left = len(known) - SHOWN_MAX
    return shown + (f" and {format_count(left, 'more table')}" if left > 0 else "")
