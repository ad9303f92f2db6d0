"""Commands that the console starts: planned first, then run as processes of their own."""

import asyncio
import os
import secrets
import signal
import sys
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import orjson

from headwater.core_log.foundation.clock import unix_ms
from headwater.core_log.foundation.errors import ConfigError, LogUnavailable
from headwater.pipelines.console.hidden_columns import HiddenColumns
from headwater.pipelines.journal.audit import VIA
from headwater.pipelines.terminal.exit_codes import DIFFERENT, INTERRUPTED, OK
from headwater.pipelines.watching.http_routes import NotFound, TooLarge

PLAN_MS, PLANS_MAX = 300_000, 100
RUNNING_MAX, RUNS_KEPT, LINES_KEPT = 2, 50, 200
LINE_BYTES_MAX, OUTPUT_BYTES_MAX = 64 << 10, 8 << 20
PLAN_S_MAX = 60.0
ARGUMENTS_LETTERS_MAX = 16_384

HEADWATER = (sys.executable, "-m", "headwater.pipelines.cli")


@dataclass(frozen=True, slots=True)
class PlannableCommand:
    """A command that may be started here, and the options that it takes."""

    words: tuple[str, ...]
    options: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    needs_file: bool = True
    has_dry_run: bool = False
    said: str = ""
    """The plan of a command that has no dry run."""
    replaces: Callable[[dict[str, str]], bool] = lambda _: False
    """Whether the target's name has to be typed before it is run."""


COMMANDS = {
    "verify": PlannableCommand(
        ("verify",),
        ("sink",),
        said="Source, log and targets are compared at one position while the pipeline goes on. "
        "Nothing is changed.",
    ),
    "repair": PlannableCommand(
        ("verify",),
        ("sink",),
        ("repair",),
        said="Rows of targets that differ are written again from the log, rows of the log that "
        "differ are read again from the source, and all are compared again.",
        replaces=lambda _: True,
    ),
    "rebuild": PlannableCommand(
        ("rebuild",),
        ("sink", "as-of"),
        ("verify", "swap"),
        has_dry_run=True,
        replaces=lambda options: "swap" in options,
    ),
    "redrive": PlannableCommand(
        ("dlq", "redrive"), ("table", "number"), needs_file=False, has_dry_run=True
    ),
    "drop-dead-letters": PlannableCommand(
        ("dlq", "drop"),
        ("table", "number"),
        ("yes",),
        needs_file=False,
        said="The dead letters are removed for good; their rows stay as the targets have them.",
        replaces=lambda _: True,
    ),
    "snapshot": PlannableCommand(
        ("snapshot", "start"),
        needs_file=False,
        said="All rows are read again from the source, beside its changes. Newer changes are never "
        "overwritten by older rows.",
    ),
    "maintain": PlannableCommand(
        ("maintain",),
        ("sink",),
        said="Small files are compacted, and files that no version needs any more are removed.",
    ),
    "reset-group": PlannableCommand(
        ("groups", "reset"),
        ("topic", "partition", "to"),
        needs_file=False,
        has_dry_run=True,
        replaces=lambda _: True,
    ),
}


@dataclass(frozen=True, slots=True)
class CommandPlan:
    """A command that can be run for five minutes from now."""

    id: str
    kind: str
    target: str
    command: str
    """As a person types it."""
    lines: list[str]
    """The lines of its plan."""
    typed: str
    """This has to be typed before it is run; empty where nothing has."""
    expires_ms: int


@dataclass(frozen=True, slots=True)
class CommandRun:
    """A command that this console has started."""

    id: str
    kind: str
    target: str
    command: str
    state: str
    """running, done, differs, failed or cancelled."""
    started_ms: int
    ended_ms: int | None
    lines: list[str]
    """The lines of its output, the newest last."""
    answer: Any
    """`data` of its JSON envelope."""
    problem: str
    hint: str


@dataclass(slots=True)
class _Running:
    run: CommandRun
    process: asyncio.subprocess.Process
    lines: deque[str] = field(default_factory=lambda: deque(maxlen=LINES_KEPT))
    is_cancelled: bool = False


class CommandRuns:
    """Two at a time, and one for each target; what is run was planned before."""

    def __init__(self, address: Sequence[str], *, file: Path | None, hidden: HiddenColumns) -> None:
        self._address, self._file, self._hidden = tuple(address), file, hidden
        self._plans: dict[str, tuple[CommandPlan, list[str]]] = {}
        self._running: dict[str, _Running] = {}
        self._starting = asyncio.Lock()
        """Two plans at once would both find that nothing runs for their target."""
        self._ended: deque[CommandRun] = deque(maxlen=RUNS_KEPT)
        self._tasks: set[asyncio.Task[None]] = set()

    async def plan(self, kind: str, target: str, options: dict[str, str]) -> CommandPlan:
        command = COMMANDS.get(kind)
        if command is None:
            raise ConfigError("the console has no command of this name", hint=", ".join(COMMANDS))
        if command.needs_file:
            self._named_file()
        arguments = _arguments(command, target, options)
        lines = [command.said]
        if command.has_dry_run:
            lines = await self._foresee([*arguments, "--dry-run"])
        self._forget_old_plans()
        plan = CommandPlan(
            id=secrets.token_urlsafe(12),
            kind=kind,
            target=target,
            command=" ".join(["headwater", *map(_quote, arguments)]),
            lines=lines,
            typed=target if command.replaces(options) else "",
            expires_ms=unix_ms() + PLAN_MS,
        )
        self._plans[plan.id] = plan, arguments
        return plan

    async def start(self, plan_id: str, typed: str) -> CommandRun:
        """A plan is run once, before it expires, and with the name that it wants typed."""
        async with self._starting:
            return await self._start(plan_id, typed)

    async def _start(self, plan_id: str, typed: str) -> CommandRun:
        self._forget_old_plans()
        found = self._plans.get(plan_id)
        if found is None:
            raise NotFound("the plan has expired, or was run already", hint="make a new one")
        plan, arguments = found
        if typed != plan.typed:
            raise ConfigError("the name is not typed", hint=f"type {plan.typed}")
        running = [each.run for each in self._running.values()]
        if any(each.target == plan.target for each in running):
            raise ConfigError("another command runs for this target", target=plan.target)
        if len(running) >= RUNNING_MAX:
            raise TooLarge("two commands run already", hint="wait for one of them")
        del self._plans[plan_id]
        process = await self._spawn([*arguments, "--json"])
        run = CommandRun(
            id=secrets.token_hex(8),
            kind=plan.kind,
            target=plan.target,
            command=plan.command,
            state="running",
            started_ms=unix_ms(),
            ended_ms=None,
            lines=[],
            answer=None,
            problem="",
            hint="",
        )
        self._running[run.id] = _Running(run, process)
        task = asyncio.ensure_future(self._follow(self._running[run.id]))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return run

    def all(self) -> list[CommandRun]:
        """Newest first."""
        running = [replace(each.run, lines=list(each.lines)) for each in self._running.values()]
        return sorted([*running, *self._ended], key=lambda run: run.started_ms, reverse=True)

    def cancel(self, run_id: str) -> CommandRun:
        """As Ctrl-C: the command ends in order."""
        running = self._running.get(run_id)
        if running is None:
            raise NotFound(
                "the command of this id is not running", hint="GET /api/v1/runs lists the commands"
            )
        running.is_cancelled = True
        with suppress(ProcessLookupError):
            running.process.send_signal(signal.SIGINT)
        return running.run

    async def close(self) -> None:
        """Commands end with the console, in order."""
        for run_id in list(self._running):
            self.cancel(run_id)
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def plan_of_file(self) -> list[str]:
        """Returns the plan of a run of the file as it is now."""
        out = await self._answer(["plan", str(self._named_file())], address=())
        return [line for line in out.splitlines() if line]

    def _named_file(self) -> Path:
        if self._file is None:
            raise ConfigError(
                "source and targets are known only from a pipeline file",
                hint="headwater ui -f FILE",
            )
        return self._file

    async def ask(self, arguments: Sequence[str]) -> Any:
        """`data` of what a command that only looks answers."""
        return _envelope((await self._answer([*arguments, "--json"])).encode()).get("data")

    async def _foresee(self, arguments: Sequence[str]) -> list[str]:
        return [line for line in (await self._answer(arguments)).splitlines() if line]

    async def _answer(
        self, arguments: Sequence[str], *, address: Sequence[str] | None = None
    ) -> str:
        process = await self._spawn(arguments, address)
        try:
            async with asyncio.timeout(PLAN_S_MAX):
                out, err = await process.communicate()
        except TimeoutError:
            raise LogUnavailable(
                "the command has not answered in time", hint="try again", seconds=int(PLAN_S_MAX)
            ) from None
        finally:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()
        if process.returncode != OK:
            problem = err.decode(errors="replace").strip().removeprefix("error: ")
            raise ConfigError(problem or "the plan cannot be made")
        return out.decode(errors="replace")

    async def _spawn(
        self, arguments: Sequence[str], address: Sequence[str] | None = None
    ) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            *HEADWATER,
            *arguments,
            *(self._address if address is None else address),
            "--no-color",
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={**os.environ, VIA: "console"},
            limit=LINE_BYTES_MAX,
        )

    async def _follow(self, running: _Running) -> None:
        process = running.process
        assert process.stdout is not None and process.stderr is not None, "both are pipes"
        out, _ = await asyncio.gather(
            _read_all(process.stdout), _keep_lines(process.stderr, running.lines)
        )
        code = await process.wait()
        content = _envelope(out)
        error = content.get("error") or {}
        state = "done" if code == OK else "differs" if code == DIFFERENT else "failed"
        if running.is_cancelled and code in (INTERRUPTED, -signal.SIGINT):
            state = "cancelled"
        ended = replace(
            running.run,
            state=state,
            ended_ms=unix_ms(),
            lines=list(running.lines),
            answer=keys_as_text(self._without_hidden(content.get("data"))),
            problem=str(error.get("problem") or ""),
            hint=str(error.get("hint") or ""),
        )
        self._ended.append(ended)
        self._running.pop(ended.id, None)

    def _without_hidden(self, answer: Any) -> Any:
        """Keys and rows of a comparison stay out where columns are hidden."""
        if not self._hidden.hides_anything or not isinstance(answer, dict):
            return answer
        tables = [
            {name: each[name] for name in each if name not in ("keys", "incomparable_keys")}
            for each in answer.get("tables", [])
            if isinstance(each, dict)
        ]
        return {**answer, "tables": tables} if tables else answer

    def _forget_old_plans(self) -> None:
        now_ms = unix_ms()
        live = {id: each for id, each in self._plans.items() if each[0].expires_ms > now_ms}
        self._plans = dict(list(live.items())[-PLANS_MAX:])


def keys_as_text(answer: Any) -> Any:
    """Differing keys of a comparison as JSON text: a browser rounds large numbers."""
    if not isinstance(answer, dict) or not isinstance(answer.get("tables"), list):
        return answer
    tables = [
        {
            **each,
            "keys": [{**key, "key": orjson.dumps(key["key"]).decode()} for key in each["keys"]],
        }
        if isinstance(each, dict) and "keys" in each
        else each
        for each in answer["tables"]
    ]
    return {**answer, "tables": tables}


async def _read_all(stream: asyncio.StreamReader) -> bytes:
    """To the end, since a process whose output nobody reads never ends; beyond the limit it is
    dropped."""
    found = bytearray()
    while content := await stream.read(1 << 16):
        if len(found) < OUTPUT_BYTES_MAX:
            found += content
    return bytes(found)


async def _keep_lines(stream: asyncio.StreamReader, lines: deque[str]) -> None:
    while True:
        try:
            line = await stream.readline()
        except ValueError:  # longer than anything that is worth showing
            continue
        if not line:
            return
        lines.append(line.decode(errors="replace").rstrip())


def _envelope(out: bytes) -> dict[str, Any]:
    for line in reversed(out.splitlines()):
        with suppress(orjson.JSONDecodeError):
            found = orjson.loads(line)
            if isinstance(found, dict):
                return found
    return {}


def _arguments(command: PlannableCommand, target: str, options: dict[str, str]) -> list[str]:
    """Values are part of their option, so that none of them can be another option."""
    if not target or target.startswith("-"):
        raise ConfigError("the target is not a name", given=target)
    found = [*command.words, target]
    for name, value in options.items():
        if name in command.options:
            found += [f"--{name}={each}" for each in value.split(",") if name == "number"]
            found += [f"--{name}={value}"] if name != "number" else []
        elif name not in command.flags:
            raise ConfigError("the command does not have this option", option=name)
    if any("\0" in each for each in found) or sum(map(len, found)) > ARGUMENTS_LETTERS_MAX:
        raise ConfigError("no command takes such options: they are too long, or have a null byte")
    chosen = [flag for flag in command.flags if flag in options or flag in ("repair", "yes")]
    return found + [f"--{flag}" for flag in chosen]


def _quote(argument: str) -> str:
    import shlex

    return shlex.quote(argument)
