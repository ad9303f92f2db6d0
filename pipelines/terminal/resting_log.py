"""The log of a data directory on which nothing runs: a command has it until the command ends."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from headwater.core_log.foundation.endpoint import Endpoint
from headwater.core_log.foundation.errors import DirectoryInUse, LogUnavailable
from headwater.pipelines.terminal.log_place import find_owner

if TYPE_CHECKING:
    from headwater.core_log.client import KafkaLog
    from headwater.core_log.embedded import EmbeddedLog
    from headwater.pipelines.file.loader import LoadedPipeline


logger = logging.getLogger(__name__)

LOOK_AGAIN_S = 0.1
SILENT_S_MAX = 15.0
"""How long a directory may be locked by somebody who does not say where to be found."""
PROPERTIES = "meta.properties"
"""The file by which a directory that holds a log is known."""


async def take_or_find(data: Path) -> "EmbeddedLog | Endpoint":
    """The log, or where its owner is to be found: one who has only begun is waited for."""
    silent_s = 0.0
    while True:
        if (endpoint := find_owner(data)) is not None:
            return endpoint
        try:
            return await take(data)
        except DirectoryInUse:
            if silent_s >= SILENT_S_MAX:
                raise
        if not silent_s:
            logger.warning("another process opens the log of %s: waiting for it", data)
        silent_s += LOOK_AGAIN_S
        await asyncio.sleep(LOOK_AGAIN_S)


async def take(data: Path) -> "EmbeddedLog":
    """Raises `DirectoryInUse`."""
    from headwater.core_log.embedded import EmbeddedLog
    from headwater.core_log.foundation.settings import BrokerSettings

    settings = BrokerSettings(data=data, listen="127.0.0.1:0", auto_create_topics=False)
    return await EmbeddedLog.open(settings, command=_command())


class LogLender:
    """Says once of each command that it has the log for which somebody else waits. When it gives
    the log back is for the lock to say: a process that was killed may keep its number."""

    def __init__(self, data: Path) -> None:
        self._data, self._told = data, dict[int, str]()

    def has_it(self) -> bool:
        """Whether it is a command that has the log."""
        endpoint = find_owner(self._data)
        if endpoint is None or endpoint.command is None:
            return False
        if self._told.get(endpoint.pid) != endpoint.command:
            self._told[endpoint.pid] = endpoint.command
            logger.warning(
                "`%s` (process %d) has the log of %s: waiting for its end",
                endpoint.command,
                endpoint.pid,
                self._data,
            )
        return True


def _command() -> str:
    context = click.get_current_context(silent=True)
    return "headwater" if context is None else context.command_path


@asynccontextmanager
async def log_as_found(loaded: "LoadedPipeline") -> "AsyncIterator[KafkaLog | None]":
    """Yields the log of whoever runs it; else the directory is opened for as long as this takes.
    None when there is none yet."""
    log = await _open(loaded)
    try:
        yield log
    finally:
        if log is not None:
            await log.close()


async def _open(loaded: "LoadedPipeline") -> "KafkaLog | None":
    # Late, since a broker that starts needs neither a client nor pipelines.
    from headwater.core_log.client import KafkaLog, KafkaSettings
    from headwater.core_log.client.local_security import security_at
    from headwater.pipelines.running.log_clients import kafka_settings

    settings = loaded.spec.log
    if settings.brokers:
        return KafkaLog(kafka_settings(loaded, settings.brokers))
    data = loaded.log_path
    try:
        if not (data / PROPERTIES).exists():
            return None
        found = await take_or_find(data)
    except PermissionError:
        raise LogUnavailable(
            "the log of this data directory belongs to another user",
            directory=str(data),
            hint="run the command as the user who runs the pipeline",
        ) from None
    return (
        KafkaLog(KafkaSettings(bootstrap=[found.kafka], security=security_at(found)))
        if isinstance(found, Endpoint)
        else found
    )
