"""One row's way from PostgreSQL to a Delta table: functions that run for it, types that hold it."""

# python -m benchmarks.row_path [--rows 20]. Broker, source and sink run in one process, each with
# its own connections, so that one tracer sees all. Shapes are the same in each run; the number of
# functions differs by a few, because work beside the way takes turns of its own.

import argparse
import asyncio
import gc
import os
import sys
import tempfile
import threading
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import numpy as np
import psycopg
import pyarrow as pa
import zstandard

from benchmarks.row_shapes import REASONS
from headwater.core_log.broker.lifecycle import RunningBroker
from headwater.core_log.client import KafkaLog
from headwater.core_log.foundation.clock import SystemClock
from headwater.core_log.foundation.settings import BrokerSettings
from headwater.pipelines.file.loader import load
from headwater.pipelines.journal.control import DesiredTaskState
from headwater.pipelines.loops.assembly import run_task
from headwater.pipelines.reports import Report, RowsMoved, TaskRun
from headwater.pipelines.running.data_directory_lock import kafka_settings
from scripts.embedded_postgres import embedded_postgres

ROOT = Path(__file__).resolve().parents[1]
RESULTS = Path(__file__).parent / "results"
OURS = f"{ROOT}/headwater/"
SINK = "lake"
KEY = 731_621_843_512_345
TEXT = "the row whose way is traced"
MARK = TEXT.encode()
"""What holds no more of the row than its key is an index or a statistic of it."""
SETTLED_S = 0.6
"""After a row has arrived: offsets are confirmed and reported beside the way."""
OF_ROWS = 0.75
"""Of so many rows a station runs more often than in the same time without one, so that bursts of
work beside the way, as a heartbeat is, do not count."""
DEPTH_MAX, ITEMS_MAX = 8, 300
ZSTD = b"\x28\xb5\x2f\xfd"
UNNAMED = ("<genexpr>", "<listcomp>", "<dictcomp>", "<setcomp>")

Watch = Callable[[FrameType, str, Any], None]


class Tracer:
    """Calls and returns of our functions, in all threads, while it has somebody to tell."""

    def __init__(self) -> None:
        self.watch: Watch | None = None
        self._known: dict[CodeType, bool] = {}

    def install(self) -> None:
        """Threads that are running already are not seen."""
        sys.setprofile(self)
        threading.setprofile(self)

    def __call__(self, frame: FrameType, event: str, argument: object) -> None:
        watch = self.watch
        if watch is None or event not in ("call", "return"):
            return
        code = frame.f_code
        is_ours = self._known.get(code)
        if is_ours is None:
            is_ours = self._known[code] = code.co_filename.startswith(OURS)
        if is_ours:
            watch(frame, event, argument)


def file_of(code: CodeType) -> str:
    return code.co_filename.removeprefix(OURS)


class CallCounts:
    """Calls by function; resumed coroutines count too. The parts of a function without a name of
    their own count as its own."""

    def __init__(self) -> None:
        self.counts: Counter[tuple[str, str]] = Counter()

    def __call__(self, frame: FrameType, event: str, argument: object) -> None:
        if event == "call" and frame.f_code.co_name not in UNNAMED:
            self.counts[(file_of(frame.f_code), frame.f_code.co_qualname)] += 1


@dataclass(slots=True)
class Shapes:
    """Types of arguments and results that hold the row, with the first function that has each.

    What was there before the row is no shape: a decoder holds the row for a moment, too, but is not
    made for it.
    """

    before: dict[int, object]
    found: dict[str, tuple[str, str]] = field(default_factory=dict)
    _busy: threading.local = field(default_factory=threading.local)

    def __call__(self, frame: FrameType, event: str, argument: object) -> None:
        if getattr(self._busy, "is_so", False):
            return
        self._busy.is_so = True
        try:
            code = frame.f_code
            if event == "return":
                values = [argument]
            else:
                count = code.co_argcount + code.co_kwonlyargcount
                names = code.co_varnames[:count]
                values = [frame.f_locals.get(name) for name in names]
            for value in values:
                held: dict[str, None] = {}
                self._hold(value, held, DEPTH_MAX, set())
                for name in held:
                    self.found.setdefault(name, (file_of(code), code.co_qualname))
        finally:
            self._busy.is_so = False

    def _hold(self, value: Any, held: dict[str, None], depth: int, above: set[int]) -> bool:
        """Adds the types that hold the row, the outermost last; returns whether it was found."""
        if value is None or isinstance(value, int | float | type | Callable) or depth == 0:
            return False
        kind = type(value)
        if isinstance(value, str | bytes | bytearray | memoryview | np.ndarray | pa.Buffer):
            is_held = _is_marked(value)
        elif kind.__module__.startswith("pyarrow"):
            is_held = _is_marked_arrow(value)
        elif id(value) in above or self.before.get(id(value)) is value:
            return False
        else:
            inner = [
                self._hold(each, held, depth - 1, above | {id(value)}) for each in _parts(value)
            ]
            is_held = any(inner)
        if is_held and (name := _name(value)):
            held[name] = None
        return is_held


def _parts(value: Any) -> list[Any]:
    kind = type(value)
    if isinstance(value, Mapping):
        return [*value.keys(), *value.values()][:ITEMS_MAX]
    if isinstance(value, tuple | list | set | frozenset | deque):
        return [*value][:ITEMS_MAX]
    if isinstance(value, partial):
        return [*value.args, *value.keywords.values()]
    if isinstance(value, asyncio.Future) and value.done() and not value.cancelled():
        return [] if value.exception() else [value.result()]
    if not _is_ours(kind):
        return []
    names = [name for base in kind.__mro__ for name in getattr(base, "__slots__", ())]
    return [getattr(value, name, None) for name in [*names, *getattr(value, "__dict__", {})]]


def _is_ours(kind: type) -> bool:
    return str(kind.__module__).startswith("headwater.")


def _name(value: Any) -> str:
    """The name of a shape; empty if it only holds others of one type, or is a single value."""
    kind = type(value)
    if isinstance(value, str):
        return ""
    if _is_ours(kind):
        return kind.__qualname__
    if kind.__module__.startswith("pyarrow"):
        return f"pa.{kind.__qualname__}"
    if isinstance(value, np.ndarray):
        return f"np.ndarray of {value.dtype}"
    if isinstance(value, Mapping):
        return "" if len({type(each) for each in value.values()}) == 1 else "dict of values"
    if isinstance(value, asyncio.Future):
        return ""
    if isinstance(value, tuple | list | set | frozenset | deque):
        names = sorted({_short(type(each)) for each in value})
        return "" if len(names) == 1 else f"{kind.__name__} of {', '.join(names)}"
    return kind.__qualname__


def _short(kind: type) -> str:
    is_array = issubclass(kind, pa.Array)
    return "pa.Array" if is_array else kind.__qualname__


def _is_marked(value: Any) -> bool:
    if isinstance(value, str):
        return TEXT in value
    if isinstance(value, np.ndarray):
        return value.dtype == np.uint8 and _is_marked(value.tobytes())
    data = bytes(value)
    if MARK in data:
        return True
    at = data.find(ZSTD)
    while at >= 0:
        with suppress(zstandard.ZstdError):
            if MARK in zstandard.ZstdDecompressor().decompressobj().decompress(data[at:]):
                return True
        at = data.find(ZSTD, at + 1)
    return False


def _is_marked_arrow(value: Any) -> bool:
    if isinstance(value, pa.Array | pa.ChunkedArray | pa.RecordBatch | pa.Table):
        return TEXT in repr(value.to_pylist())
    if isinstance(value, pa.Scalar):
        return TEXT in repr(value.as_py())
    return False


@dataclass(slots=True)
class Pipeline:
    """Broker, source and sink in this process, and a table that they follow."""

    connection: psycopg.AsyncConnection[Any]
    arrived: asyncio.Queue[int]

    async def insert(self, key: int, text: str) -> None:
        """Returns once the sink has applied the row, and what follows has been done."""
        await self.connection.execute("INSERT INTO items VALUES (%s, %s)", (key, text))
        await self.arrived.get()
        await asyncio.sleep(SETTLED_S)


@asynccontextmanager
async def running(directory: Path, address: str) -> AsyncIterator[Pipeline]:
    connection = await psycopg.AsyncConnection.connect(address, autocommit=True)
    await connection.execute("CREATE TABLE items (id bigint PRIMARY KEY, note text)")
    await connection.execute("INSERT INTO items VALUES (1, 'there before')")
    broker = await RunningBroker.start(
        BrokerSettings(data=directory / "data", listen="127.0.0.1:0")
    )
    path = directory / "pipeline.yaml"
    path.write_text(
        f"pipeline: shop\nsource: {{type: postgres, url: '{address}', tables: [public.items]}}\n"
        f"sink: {{type: spark, name: {SINK}, path: {directory / 'lake'}, commit_every: 0s}}\n"
        f"log: {{type: kafka, bootstrap: '{broker.endpoint}'}}\n"
    )
    [loaded] = load(path, environment=os.environ)
    arrived: asyncio.Queue[int] = asyncio.Queue()

    def hear(report: Report) -> None:
        if isinstance(report, RowsMoved) and report.task == SINK:
            arrived.put_nowait(report.rows)

    logs = [KafkaLog(kafka_settings(loaded, [broker.endpoint])) for _ in range(2)]
    tasks = [
        asyncio.ensure_future(
            run_task(
                TaskRun(
                    loaded,
                    name,
                    log,
                    desired=lambda: DesiredTaskState(loaded.name),
                    clock=SystemClock(),
                    report=hear,
                )
            )
        )
        for name, log in zip(("source", SINK), logs, strict=True)
    ]
    try:
        first = asyncio.ensure_future(arrived.get())
        await asyncio.wait([first, *tasks], return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            if task.done():
                task.result()
        yield Pipeline(connection, arrived)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for log in logs:
            await log.close()
        await broker.stop()
        await connection.close()


@dataclass(frozen=True, slots=True)
class RowPath:
    stations: list[tuple[str, str]]
    shapes: Shapes


async def measure(directory: Path, address: str, tracer: Tracer, *, rows: int) -> RowPath:
    async with running(directory, address) as pipeline:
        for number in range(5):
            await pipeline.insert(1_000 + number, "warms up")
        more, now = Counter[tuple[str, str]](), asyncio.get_running_loop().time
        for number in range(rows):
            seen, idle = CallCounts(), CallCounts()
            begun, tracer.watch = now(), seen
            await pipeline.insert(2_000 + number, "counted")
            took, tracer.watch = now() - begun, idle
            await asyncio.sleep(took)
            tracer.watch = None
            more.update(place for place, count in seen.counts.items() if count > idle.counts[place])
        stations = [place for place, count in more.items() if count > rows * OF_ROWS]
        gc.collect()
        kept = [each for each in gc.get_objects() if _is_ours(type(each))]
        shapes = Shapes({id(each): each for each in kept})
        tracer.watch = shapes
        await pipeline.insert(KEY, TEXT)
        tracer.watch = None
    return RowPath(sorted(stations), shapes)


def page(found: RowPath) -> str:
    files = Counter(file for file, _ in found.stations)
    shapes = found.shapes.found
    lines = [
        "# One row's way, traced",
        "",
        "Written by `benchmarks/row_path.py`: one INSERT of a row of two columns into PostgreSQL,",
        "to the built-in log, to a Delta table in mode `mirror`; no filter, no mask, a slice for",
        "each commit. Start, snapshot and what runs without a row are left out. A station is a",
        "function of ours that runs for a row more often than in the same time without one, for",
        "three rows of four at least. A shape is a type of an argument or a result that holds the",
        "row's text and was made for it; a container of one type only is none.",
        "",
        "| Part | Functions | Files | Shapes |",
        "|---|---|---|---|",
    ]
    parts = Counter(part_of(file) for file in files)
    for part, count in sorted(parts.items()):
        stations = sum(part_of(file) == part for file, _ in found.stations)
        here = sum(part_of(file) == part for file, _ in shapes.values())
        lines.append(f"| {part} | {stations} | {count} | {here} |")
    lines += [
        f"| all | {len(found.stations)} | {len(files)} | {len(shapes)} |",
        "",
        "## Shapes, in the order in which the row takes them",
        "",
        "| Shape | First in | Why |",
        "|---|---|---|",
    ]
    for name, (file, function) in shapes.items():
        lines.append(f"| {name} | `{file}`: `{function}` | {REASONS.get(name, 'not said')} |")
    lines += ["", "## Stations", ""]
    for file in sorted(files):
        names = ", ".join(f"`{name}`" for each, name in found.stations if each == file)
        lines.append(f"- `{file}`: {names}")
    return "\n".join(lines) + "\n"


def part_of(file: str) -> str:
    return "/".join(file.split("/")[:2]) if "/" in file.partition("/")[2] else file.split("/")[0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=20)
    chosen = parser.parse_args()
    tracer = Tracer()
    tracer.install()
    with (
        tempfile.TemporaryDirectory(prefix="headwater-path-") as directory,
        embedded_postgres() as server,
    ):
        work = measure(Path(directory), server.address, tracer, rows=chosen.rows)
        found = asyncio.run(work)
    (RESULTS / "row_path.md").write_text(page(found))
    print(page(found).partition("\n## ")[0])


if __name__ == "__main__":
    main()
