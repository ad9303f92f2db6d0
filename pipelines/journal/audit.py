"""The audit of commands: a record in `__headwater_audit` before a command acts, and one at its
end."""

import getpass
import os
import platform
import secrets
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import orjson

from headwater.core_log.foundation.clock import unix_ms
from headwater.core_log.foundation.errors import DecodeError, HeadwaterError, LogRejected
from headwater.core_log.foundation.settings import TopicSettings
from headwater.core_log.model.log import Log, TopicPartition
from headwater.pipelines.journal.commits import small_batch
from headwater.pipelines.journal.internal_topics import AUDIT, read_decided

FORMAT_VERSION = 1
RETENTION_MS = 90 * 86_400_000
VIA = "HEADWATER_VIA"
"""Environment variable by which a process names itself to the commands that it starts."""
STARTED, DONE, FAILED = "started", "done", "failed"
HOME = TopicPartition(AUDIT, 0)
READ_MAX = 20_000
"""Records that are read back; two belong to one action."""


@dataclass(frozen=True, slots=True)
class AuditedAction:
    """One action of a person or a schedule; it has no key and no value of a row."""

    id: str
    started_ms: int
    user: str
    host: str
    via: str
    """`command`, `console`, or `http`: a request to the process that runs the pipelines."""
    command: str
    target: str
    options: dict[str, str]
    outcome: str = STARTED
    """`started` for as long as no end is known: it runs, or its process was killed."""
    ended_ms: int | None = None
    problem: str = ""


def new_action(
    command: str, target: str, options: Mapping[str, object], *, via: str = ""
) -> AuditedAction:
    return AuditedAction(
        id=secrets.token_hex(8),
        started_ms=unix_ms(),
        user=_user(),
        host=platform.node(),
        via=via or os.environ.get(VIA, "command"),
        command=command,
        target=target,
        options={name: str(value) for name, value in options.items() if value},
    )


@asynccontextmanager
async def audit(
    log: Log,
    command: str,
    target: str,
    options: Mapping[str, object] | None = None,
    *,
    via: str = "",
) -> AsyncIterator["ActionOutcome"]:
    """Nothing is done that could not be recorded before."""
    action, outcome = new_action(command, target, options or {}, via=via), ActionOutcome()
    await write_action(log, action)
    try:
        yield outcome
    except BaseException as error:
        problem = error.problem if isinstance(error, HeadwaterError) else type(error).__name__
        await write_action(log, _ended(action, FAILED, problem))
        raise
    await write_action(log, _ended(action, FAILED if outcome.problem else DONE, outcome.problem))


@dataclass(slots=True)
class ActionOutcome:
    """The findings of an action that ends without an error; empty where all is well."""

    problem: str = field(default="")


def _ended(action: AuditedAction, outcome: str, problem: str) -> AuditedAction:
    return replace(action, outcome=outcome, ended_ms=unix_ms(), problem=problem)


async def write_action(log: Log, action: AuditedAction) -> None:
    config = {"cleanup.policy": "delete", "retention.ms": str(RETENTION_MS)}
    await log.ensure_topic(TopicSettings(name=AUDIT, config=config))
    content = orjson.dumps({"version": FORMAT_VERSION, **asdict(action)})
    await log.append(HOME, small_batch([(action.id.encode(), content)], now_ms=unix_ms()))


async def read_actions(log: Log) -> list[AuditedAction]:
    """The newest of the log, newest first."""
    try:
        bounds = (await log.bounds([HOME]))[HOME]
    except LogRejected:
        return []
    found: dict[str, AuditedAction] = {}
    async for columns in read_decided(log, HOME, from_offset=bounds.end - READ_MAX):
        for value in columns.values.to_pylist():
            content: dict[str, Any] = orjson.loads(value)
            if (version := content.pop("version")) > FORMAT_VERSION:
                raise DecodeError(
                    "an action is recorded by a newer version of Headwater", version=version
                )
            action = AuditedAction(**content)
            found[action.id] = action
    return list(reversed(found.values()))


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container may run under a number without a name
        return str(os.getuid())
