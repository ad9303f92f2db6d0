"""A status snapshot as the lines of one screen: what runs, how far behind, what is left, what is
wrong."""

import textwrap
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, NamedTuple

from headwater.pipelines.terminal.output import format_count, printable
from headwater.pipelines.terminal.quantities import (
    UNKNOWN,
    count_text,
    duration_text,
    rate_text,
    size_text,
    time_text,
)

Facts = Mapping[str, Any]

STYLES = {
    "running": "green",
    "streaming": "green",
    "done": "green",
    "starting": "cyan",
    "snapshotting": "cyan",
    "replaying": "cyan",
    "re-reading": "yellow",
    "rebuilding": "yellow",
    "left out": "yellow",
    "paused": "yellow",
    "retrying": "yellow",
    "quarantined": "red",
    "stopped": "",
}
WORST_FIRST = (
    "quarantined", "retrying", "left out", "re-reading", "rebuilding", "snapshotting", "replaying",
    "starting", "paused", "streaming", "running", "done", "stopped",
)  # fmt: skip
"""In which order tables are shown where not all of them fit."""

GAUGES = {
    "retained_wal_bytes": "retained WAL",
    "small_files": "small files",
    "verify_due_ms": "next comparison",
}
"""Names of figures of sources and tables for people."""

BAR_CELLS = 10
WIDE = 100
"""From this width on there is room for what can be missed."""
REASON_LINES_MAX = 3
SINCE_MS_MIN = 1_000
GAP = "  "
TABLE_CELLS_MIN, TABLE_CELLS_MAX = 12, 48
SUMMED_FROM = 30
"""With more tables than this their states are counted first, where there is room for it."""
SUMMED_LINES_MIN = 12


class TextSpan(NamedTuple):
    """A piece of a line and how it is drawn: a colour, `bold`, `dim`, or nothing."""

    text: str
    style: str = ""


ScreenLine = list[TextSpan]


class ScreenColumn(NamedTuple):
    head: str
    cells: int
    is_right: bool = False


COLUMNS = (
    ScreenColumn("STATE", 12),
    ScreenColumn("SNAPSHOT", 22),
    ScreenColumn("LAG", 7, is_right=True),
    ScreenColumn("ROWS/S", 7, is_right=True),
    ScreenColumn("DLQ", 6, is_right=True),
)
VERIFIED = ScreenColumn("VERIFIED", 22)
"""Only there where something was verified, and the screen is wide."""
OFFLINE_SHOWN = 5
"""Limit of the partitions that cannot be used: one failed disk can take all of them."""


class ScreenSpace(NamedTuple):
    """How much of all tables is shown; of too many those that need somebody come first."""

    lines: int | None = None
    tables: int | None = None
    rest_hint: str = "a higher window or --json shows them"
    """How the others are seen."""


def screen(
    snapshot: Facts,
    *,
    width: int,
    lines_max: int | None = None,
    tables_max: int | None = None,
    has_unicode: bool = True,
) -> list[ScreenLine]:
    """Lines of at most `width` cells, and lines of at most `tables_max` tables of a pipeline."""
    found = snapshot["pipelines"]
    lines: list[ScreenLine] = []
    for problem in log_problems(snapshot):
        wrapped = textwrap.wrap(f"LOG {printable(problem)}", max(width, 20))
        lines += [[TextSpan(part, "red")] for part in wrapped]
    if not found:
        return [*lines, [TextSpan("no pipeline is running here", "dim")]]
    for index, (name, pipeline) in enumerate(found.items()):
        rest = (
            ScreenSpace(tables=tables_max, rest_hint="--all shows them")
            if tables_max
            else ScreenSpace()
        )
        if lines_max is not None:
            rest = ScreenSpace(max((lines_max - len(lines)) // (len(found) - index), 1))
        if len(snapshot.get("members", ())) > 1:
            pipeline = {**pipeline, "tasks": _on_members(pipeline["tasks"])}
        block = list(_block(name, pipeline, snapshot["at_ms"], width, rest, has_unicode))
        lines += ([[]] if lines else []) + block
    return [cut(line, width) for line in lines]


def log_problems(snapshot: Facts) -> list[str]:
    """Returns the problems of the log itself, the partitions that cannot be used among them."""
    found = [snapshot["log_problem"]] if snapshot["log_problem"] else []
    offline = [f"{at} is offline: {why}" for at, why in snapshot["offline_partitions"].items()]
    rest = len(offline) - OFFLINE_SHOWN
    more = (
        [f"{format_count(rest, 'more partition')} offline; --json shows them"] if rest > 0 else []
    )
    return [*found, *offline[:OFFLINE_SHOWN], *more]


def plain(line: ScreenLine) -> str:
    return "".join(span.text for span in line).rstrip()


def log_line(name: str, pipeline: Facts) -> str:
    """One pipeline in one line, for logs."""
    tasks, tables = pipeline["tasks"], pipeline["tables"]
    parts = [f"{name} {pipeline['state']}", format_count(len(tables), "table")]
    if source := tasks.get("source"):
        parts.append(f"{rate_text(source['rows_per_s'])} rows/s in")
    for task, facts in tasks.items():
        if task != "source":
            lag = duration_text(facts["lag_ms"])
            parts.append(f"{rate_text(facts['rows_per_s'])} rows/s into {task}, lag {lag}")
    reading = [t["snapshot"] for t in tables.values() if t["snapshot"]]
    if unfinished := [each for each in reading if not each["is_done"]]:
        parts.append(_reading_text(unfinished))
    for table, facts in tables.items():
        if facts["state"] in ("quarantined", "re-reading", "rebuilding"):
            parts.append(f"{facts['state']} {table}: {first_line(facts['reason'])}")
    if dead_letters := sum(table["dead_letters"] for table in tables.values()):
        parts.append(f"{count_text(dead_letters)} dead letters")
    if pipeline["reason"]:
        parts.append(first_line(pipeline["reason"]))
    return printable("; ".join(parts))


def _reading_text(readings: Sequence[Facts]) -> str:
    rows = sum(each["rows"] for each in readings)
    text = f"reading {format_count(len(readings), 'table')}, {count_text(rows)} rows"
    fractions = [each["fraction"] for each in readings if each["fraction"] is not None]
    if len(fractions) == len(readings):
        text += f", {min(fractions):.0%}"
    etas = [each["eta_ms"] for each in readings if each["eta_ms"] is not None]
    return text + (f", {duration_text(max(etas))} left" if etas else "")


def _block(
    name: str, pipeline: Facts, at_ms: int, width: int, whole: ScreenSpace, has_unicode: bool
) -> Iterator[ScreenLine]:
    tables = pipeline["tables"]
    state = pipeline["state"]
    head: ScreenLine = [
        TextSpan("PIPELINE ", "dim"),
        TextSpan(printable(name), "bold"),
        TextSpan("   "),
        TextSpan(state, STYLES[state]),
        TextSpan(f"   {format_count(len(tables), 'table')}"),
    ]
    if pipeline["since_ms"] is not None and at_ms - pipeline["since_ms"] >= SINCE_MS_MIN:
        head.append(TextSpan(f"   for {duration_text(at_ms - pipeline['since_ms'])}", "dim"))
    tasks = list(_task_lines(pipeline["tasks"], width, has_unicode))
    yield from [head, *tasks]
    if tables:
        reasons = {task["reason"] for task in pipeline["tasks"].values()}
        room, is_summed = whole, len(tables) > SUMMED_FROM
        if whole.lines is not None:
            is_summed = is_summed and whole.lines >= SUMMED_LINES_MIN
            room = whole._replace(lines=max(whole.lines - len(tasks) - 2 - is_summed, 3))
        if is_summed:
            yield _summary(tables)
        yield from _table_lines(tables, reasons, at_ms, width, room, has_unicode)


def _on_members(tasks: Facts) -> Facts:
    """Says of each task on which of several machines it runs."""
    return {
        name: {**task, "place": f"  on {printable(task['member'])}" if task["member"] else ""}
        for name, task in tasks.items()
    }


def _task_lines(tasks: Facts, width: int, has_unicode: bool) -> Iterator[ScreenLine]:
    cells = max(len(printable(name)) for name in tasks)
    for name, task in tasks.items():
        state = task["state"]
        lag = task["lag_records"]
        behind = "" if lag is None else f", {count_text(lag)} records"
        size = f"  {size_text(task['bytes_per_s']):>10}/s" if width >= WIDE else ""
        yield [
            TextSpan(f"  {printable(name):<{cells}}  "),
            TextSpan(f"{state:<11}", STYLES[state]),
            TextSpan(
                f"  {count_text(task['rows']):>7} rows  {rate_text(task['rows_per_s']):>7} rows/s"
            ),
            TextSpan(f"{size}  lag {duration_text(task['lag_ms'])}{behind}"),
            TextSpan(task.get("place", ""), "dim"),
        ]
        yield from _gauge_lines(task["gauges"], cells)
        yield from _because(task["reason"], width, has_unicode)
        for remark in task.get("remarks", {}).values():
            said = [remark["problem"], *([f"hint: {remark['hint']}"] if remark["hint"] else [])]
            yield from _because("\n".join(said), width, has_unicode)


def _gauge_lines(gauges: Facts, indent: int) -> Iterator[ScreenLine]:
    """A figure of tables is one line for all of them, and none where it is 0."""
    for name, each in groupby(sorted(gauges), key=lambda gauge: gauge.partition(" ")[0]):
        of_one = [gauges[gauge] for gauge in each]
        value = sum(gauge["value"] for gauge in of_one)
        limit = None if None in (all_of := [gauge["limit"] for gauge in of_one]) else sum(all_of)
        if name not in gauges and not value:
            continue
        shown = _gauge_text(name)
        reasons = f"{GAUGES.get(name, name)} {shown(value)}"
        style = "red" if limit is not None and value > limit else "dim"
        yield [
            TextSpan(" " * (indent + 4)),
            TextSpan(reasons + ("" if limit is None else f" of {shown(limit)}"), style),
        ]


def _gauge_text(name: str) -> Callable[[int], str]:
    if name.endswith("_ms"):
        return time_text
    return size_text if name.endswith("_bytes") else count_text


def _table_lines(
    tables: Facts,
    reasons: Collection[str],
    at_ms: int,
    width: int,
    whole: ScreenSpace,
    has_unicode: bool,
) -> Iterator[ScreenLine]:
    """`reasons` are reasons that stand above already."""
    is_verified = width >= WIDE and any(each.get("verified") for each in tables.values())
    columns = (*COLUMNS, VERIFIED) if is_verified else COLUMNS
    fixed = sum(len(GAP) + column.cells for column in columns)
    longest = max(len(printable(table)) for table in tables)
    room = min(max(width - fixed, TABLE_CELLS_MIN), TABLE_CELLS_MAX)
    cells = max(min(longest, room), len("TABLE"))
    heads = [f"{'TABLE':<{cells}}"]
    heads += [_align(column.head, column) for column in columns]
    yield [TextSpan(GAP.join(heads), "dim")]
    order = sorted(tables, key=lambda table: _urgency(tables[table]))
    left_out = 0 if whole.tables is None else max(len(order) - whole.tables, 0)
    order = order[: len(order) - left_out]
    lines = [
        [
            _table(table, tables[table], cells, at_ms if is_verified else None, has_unicode),
            *_because(_reason(tables[table], reasons), width, has_unicode),
        ]
        for table in order
    ]
    shown = _as_many_as_fit(lines, whole.lines)
    for block in lines[:shown]:
        yield from block
    if left_out := left_out + len(lines) - shown:
        yield [TextSpan(f"and {format_count(left_out, 'more table')}; {whole.rest_hint}", "dim")]


def _summary(tables: Facts) -> ScreenLine:
    """How many tables are in which state, the worst first."""
    counts = Counter(table["state"] for table in tables.values())
    line: ScreenLine = [TextSpan("TABLES   ", "dim")]
    for state in sorted(counts, key=WORST_FIRST.index):
        line += [TextSpan(f"{count_text(counts[state])} {state}", STYLES[state]), TextSpan("   ")]
    return line[:-1]


def _as_many_as_fit(blocks: Sequence[Sequence[ScreenLine]], lines_max: int | None) -> int:
    if lines_max is None or sum(map(len, blocks)) <= lines_max:
        return len(blocks)
    used = 1  # the line that says how many are left out
    for index, block in enumerate(blocks):
        used += len(block)
        if used > lines_max:
            return index
    return len(blocks)


def _urgency(facts: Facts) -> tuple[int, float]:
    return WORST_FIRST.index(facts["state"]), -(facts["lag_ms"] or 0)


def _table(name: str, facts: Facts, cells: int, at_ms: int | None, has_unicode: bool) -> ScreenLine:
    """With `at_ms`, the time of the snapshot, it says when the table was verified last."""
    state = facts["state"]
    dead_letters = facts["dead_letters"]
    values = (
        TextSpan(state, STYLES[state]),
        TextSpan(_snapshot_text(facts["snapshot"], has_unicode)),
        TextSpan(duration_text(facts["lag_ms"])),
        TextSpan(rate_text(facts["rows_per_s"])),
        TextSpan(count_text(dead_letters), "red" if dead_letters else ""),
    )
    line: ScreenLine = [TextSpan(f"{shorten(printable(name), cells, has_unicode):<{cells}}")]
    for column, value in zip(COLUMNS, values, strict=True):
        line += [TextSpan(GAP), TextSpan(_align(value.text, column), value.style)]
    if at_ms is not None:
        value = _to_verified(facts.get("verified"), at_ms)
        line += [TextSpan(GAP), TextSpan(_align(value.text, VERIFIED), value.style)]
    return line


def _to_verified(facts: Facts | None, at_ms: int) -> TextSpan:
    if facts is None:
        return TextSpan(UNKNOWN)
    ago = f"{duration_text(max(at_ms - facts['at_ms'], 0))} ago"
    if facts["differing"]:
        return TextSpan(f"{ago}, {count_text(facts['differing'])} differ", "red")
    return (
        TextSpan(f"{ago}, not all", "yellow")
        if facts["problem"]
        else TextSpan(f"{ago}, equal", "green")
    )


def _reason(facts: Facts, reasons: Collection[str]) -> str:
    if facts["reason"] and facts["reason"] not in reasons:
        return str(facts["reason"])
    return f"last dead letter: {facts['dead_letter_problem']}" if facts["dead_letters"] else ""


def _snapshot_text(reading: Facts | None, has_unicode: bool) -> str:
    if reading is None:
        return UNKNOWN
    if reading["is_done"]:
        return f"done {count_text(reading['rows'])}" if reading["rows"] else "done"
    if reading["fraction"] is None:
        return f"{count_text(reading['rows'])} rows"
    bar = progress_bar(reading["fraction"], has_unicode=has_unicode)
    left = "" if reading["eta_ms"] is None else f" {duration_text(reading['eta_ms'])}"
    return f"{bar} {reading['fraction'] * 100:.0f}%{left}"


def progress_bar(fraction: float, *, has_unicode: bool) -> str:
    full = int(fraction * BAR_CELLS)
    done, left = ("━", "─") if has_unicode else ("#", ".")
    return done * full + left * (BAR_CELLS - full)


def _because(reason: str, width: int, has_unicode: bool) -> Iterator[ScreenLine]:
    """Why something is so, and what to do; all of it, since nothing on the screen matters more."""
    mark = "└" if has_unicode else "-"
    for paragraph in filter(None, map(str.strip, reason.splitlines())):
        wrapped = textwrap.wrap(printable(paragraph), max(width - 4, 20))
        for part in wrapped[:REASON_LINES_MAX]:
            yield [TextSpan(f"  {mark} {part}", "dim")]
            mark = " "


def first_line(text: str) -> str:
    """A hint stands on lines of its own, for which a log line has no room."""
    return text.partition("\n")[0]


def _align(text: str, column: ScreenColumn) -> str:
    return f"{text:>{column.cells}}" if column.is_right else f"{text:<{column.cells}}"


def shorten(text: str, cells: int, has_unicode: bool = True) -> str:
    """Long names lose their middle: tables of one schema differ at the end."""
    if len(text) <= cells:
        return text
    mark = "…" if has_unicode else "~"
    head = (cells - 1) // 3
    return text[:head] + mark + text[len(text) - (cells - 1 - head) :]


def cut(line: ScreenLine, width: int) -> ScreenLine:
    """Nothing wraps: a screen of lines stays a screen of lines."""
    kept: ScreenLine = []
    for span in line:
        room = width - sum(len(each.text) for each in kept)
        if room <= 0:
            break
        kept.append(TextSpan(span.text[:room], span.style))
    return kept
