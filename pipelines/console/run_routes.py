"""Routes of commands that the console plans and runs, and of everything that was done."""

from dataclasses import dataclass, field
from typing import Any

import orjson
from pydantic import TypeAdapter, ValidationError
from starlette.requests import Request

from headwater.core_log.foundation.errors import ConfigError
from headwater.pipelines.console.command_runs import CommandPlan, CommandRun
from headwater.pipelines.console.console_route import API, ConsoleContext, ConsoleRoute
from headwater.pipelines.journal.audit import AuditedAction, read_actions
from headwater.pipelines.watching.http_routes import read_body

ACTIONS_MAX = 500


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
        "Who did what: the newest 500 actions of commands and consoles, newest first.",
        list[AuditedAction],
    ),
)
