"""Routes of every page: the session, the live status, signals, commands and the audit."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

import orjson
from pydantic import TypeAdapter, ValidationError
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from headwater.core_log.foundation.errors import ConfigError, LogUnavailable
from headwater.pipelines.console.command_runs import CommandPlan, CommandRun
from headwater.pipelines.console.console_route import API, ConsoleContext, ConsoleRoute
from headwater.pipelines.console.live_status import LISTENERS_MAX, MINUTE, SECOND, PastLine
from headwater.pipelines.journal.audit import AuditedAction, read_actions
from headwater.pipelines.watching.http_routes import CONTROLS, TooLarge, read_body

ACTIONS_MAX = 500


@dataclass(frozen=True, slots=True)
class Session:
    """The pipelines and the rights of this console."""

    is_read_only: bool


@dataclass(frozen=True, slots=True)
class SignalSent:
    """A signal that the log has."""

    pipeline: str
    table: str | None
    signal: str
    id: str


async def session(console: ConsoleContext, request: Request) -> Session:
    return Session(console.sources.is_read_only)


@dataclass(frozen=True, slots=True)
class PipelinePast:
    """Since the console was started."""

    lines: dict[str, PastLine]
    """By task; or only that of the table."""


async def past(console: ConsoleContext, request: Request) -> PipelinePast:
    asked = request.query_params
    every = asked.get("every", SECOND)
    if every not in (SECOND, MINUTE):
        raise ConfigError("the parameter is neither second nor minute", parameter="every")
    pipeline = request.path_params["pipeline"]
    return PipelinePast(console.live.past.lines(pipeline, asked.get("table", ""), every))


async def live(console: ConsoleContext, request: Request) -> Response:
    if console.live.listeners >= LISTENERS_MAX:
        raise TooLarge("the console has too many listeners", hint="close a page of it")

    async def events() -> AsyncIterator[bytes]:
        async for event in console.live.events():
            yield event

    return StreamingResponse(
        events(), media_type="text/event-stream", headers={"Cache-Control": "no-store"}
    )


@dataclass(frozen=True, slots=True)
class PipelinePlan:
    """The plan of a run of the file as it is now."""

    lines: list[str]


async def plan_of_file(console: ConsoleContext, request: Request) -> PipelinePlan:
    """A command reads the file and asks the source, so that no driver is loaded here."""
    return PipelinePlan(await console.runs.plan_of_file())


async def signal(console: ConsoleContext, request: Request) -> SignalSent:
    """Hands the signal to the process that runs the pipeline, which writes it to the log."""
    verb = request.url.path.removeprefix(API).split("/")[3]
    given = request.path_params
    return await send_signal(console, given["pipeline"], verb, given.get("table"))


async def send_signal(
    console: ConsoleContext, pipeline: str, verb: str, table: str | None = None
) -> SignalSent:
    owner = await console.live.owner()
    if owner is None:
        raise LogUnavailable("no pipeline is running on this log", hint="headwater run")
    wanted = ["pipelines", pipeline, verb, *([] if table is None else [table])]
    path = "".join(f"/{quote(part, safe='')}" for part in wanted)
    return SignalSent(**await asyncio.to_thread(owner.ask, "POST", path, via="console"))


@dataclass(frozen=True, slots=True)
class PlanWanted:
    """The body of a plan: what is to be run."""

    kind: str
    target: str
    options: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RunWanted:
    """The body of a run: a plan, and the name that it wants typed."""

    plan: str
    typed: str = ""


async def plan(console: ConsoleContext, request: Request) -> CommandPlan:
    wanted: PlanWanted = await _body(request, PlanWanted)
    return await console.runs.plan(wanted.kind, wanted.target, wanted.options)


async def run(console: ConsoleContext, request: Request) -> CommandRun:
    wanted: RunWanted = await _body(request, RunWanted)
    return await console.runs.start(wanted.plan, wanted.typed)


async def runs(console: ConsoleContext, request: Request) -> list[CommandRun]:
    return console.runs.all()


async def cancel(console: ConsoleContext, request: Request) -> CommandRun:
    return console.runs.cancel(request.path_params["run"])


async def audit(console: ConsoleContext, request: Request) -> list[AuditedAction]:
    async with console.open_log() as log:
        return (await read_actions(log))[:ACTIONS_MAX]


async def _body(request: Request, kind: Any) -> Any:
    try:
        content = orjson.loads(await read_body(request))
        return TypeAdapter(kind).validate_python(content, strict=False)
    except (orjson.JSONDecodeError, ValidationError):
        raise ConfigError(
            "the body is not what the route takes", hint="docs/openapi.json"
        ) from None


ROUTES = (
    ConsoleRoute("GET", API + "/session", session, "Whether signals may be sent here.", Session),
    ConsoleRoute(
        "GET",
        API + "/live",
        live,
        "Server-sent events: `past` once (rates and lags of the last two minutes), then `status` "
        "each second, with the fields of [status](status.md).",
        Response,
    ),
    ConsoleRoute(
        "GET",
        API + "/pipelines/{pipeline}/past",
        past,
        "Rates and lags of every task, or of a table, in each second of the last ten minutes or "
        "each minute of the last day, as far as this console has run.",
        PipelinePast,
        {"table": "Only this table.", "every": "`second` (the default) or `minute`."},
    ),
    ConsoleRoute(
        "GET",
        API + "/file-plan",
        plan_of_file,
        "Effects that a run of the pipeline file, as it is now, would have: `headwater plan`.",
        PipelinePlan,
    ),
    *(
        ConsoleRoute(
            "POST",
            f"{API}/pipelines/{{pipeline}}/{verb}{table}",
            signal,
            meaning,
            SignalSent,
            status=202,
        )
        for verb, meaning in CONTROLS.items()
        for table in ("", "/{table:path}")
    ),
    ConsoleRoute(
        "POST",
        API + "/plans",
        plan,
        "Plan a command: verify, repair, rebuild, redrive, drop-dead-letters, snapshot, maintain "
        "or reset-group. The answer says what it would do; it expires after five minutes.",
        CommandPlan,
        body=PlanWanted,
        status=201,
    ),
    ConsoleRoute(
        "POST",
        API + "/runs",
        run,
        "Run a plan once. Two commands run at a time, and one for each target.",
        CommandRun,
        body=RunWanted,
        status=202,
    ),
    ConsoleRoute(
        "DELETE",
        API + "/runs/{run}",
        cancel,
        "Cancel a command, as Ctrl-C does.",
        CommandRun,
        status=202,
    ),
    ConsoleRoute(
        "GET",
        API + "/runs",
        runs,
        "Commands that this console has started, newest first.",
        list[CommandRun],
    ),
    ConsoleRoute(
        "GET",
        API + "/audit",
        audit,
        "The newest 500 actions of commands and consoles with their users, newest first.",
        list[AuditedAction],
    ),
)
