"""Finds the log of a pipeline file, and takes one at rest, which a command has until it ends."""

import logging
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from headwater.core_log.foundation.endpoint import FILE_NAME, Endpoint, decode_endpoint
from headwater.core_log.foundation.errors import (
    ConfigError,
    DecodeError,
    DirectoryInUse,
    LogUnavailable,
)

if TYPE_CHECKING:
    from headwater.core_log.client import KafkaLog
    from headwater.core_log.embedded import EmbeddedLog
    from headwater.core_log.foundation.settings import BrokerSettings, SecuritySettings
    from headwater.pipelines.file.loader import LoadedPipeline
    from headwater.pipelines.file.log_settings import LogSettings

logger = logging.getLogger(__name__)

LOOK_AGAIN_S = 0.1
SILENT_S_MAX = 15.0
"""How long a directory may be locked by somebody who does not say where to be found."""
PROPERTIES = "meta.properties"
"""The file by which a directory that holds a log is known."""
LOCK = "lock"


class DataDirectory(NamedTuple):
    """An embedded log is found by its directory; a cluster by its brokers, and who runs pipelines
    over it by the directory all the same."""

    data: Path
    bootstrap: tuple[str, ...] = ()
    security: "SecuritySettings | None" = None
    """How a cluster is spoken to."""


def place_in(path: Path, data: Path | None = None) -> DataDirectory:
    """Returns the log of one file, or of a directory of files that share one. `data` stands in
    place of `log.path` of the files."""
    from headwater.core_log.foundation.speed import freeze_imports

    with freeze_imports():
        from headwater.pipelines.file.log_settings import files_at

    files = files_at(path)
    places = {_place_of(each, data): each for each in files}
    if len(places) > 1:
        raise ConfigError(
            "the files of this directory use several logs",
            hint=f"name one file: -f {files[0]}",
            path=str(path),
        )
    return next(iter(places))


def _place_of(path: Path, data: Path | None) -> DataDirectory:
    from headwater.core_log.foundation.speed import freeze_imports

    with freeze_imports():
        from headwater.config.document import MappingNode, read_document
        from headwater.config.excerpts import add_excerpt
        from headwater.config.mistakes import MistakesFound
        from headwater.config.substitution import substitute
        from headwater.config.validation import Validator
        from headwater.pipelines.file.log_settings import LogSettings

    written = read_document(path)
    substituted = substitute(written, os.environ)
    document, redaction = substituted.document, substituted.redaction
    settings = LogSettings()
    if isinstance(document.root, MappingNode) and "log" in document.root.values:
        validator = Validator(document)
        found = validator.validate(LogSettings, document.root.values["log"], ("log",))
        if found is None:
            raise MistakesFound(
                [add_excerpt(each, written, redaction) for each in validator.mistakes]
            )
        settings = found
    data = data or path.parent / settings.path
    if not settings.brokers:
        return DataDirectory(data)
    security = security_of_log(settings, data=data, directory=path.parent)
    return DataDirectory(data, settings.brokers, security)


def security_of_log(log: "LogSettings", *, data: Path, directory: Path) -> "SecuritySettings":
    """Returns how the log of a pipeline file is spoken to, with relative files resolved from
    `directory`. An embedded one may authenticate; its owner says how, or else its own settings."""
    if log.type == "kafka":
        return log.security.beside(directory)
    from headwater.core_log.client.settings import security_at, security_by_secret
    from headwater.core_log.foundation.settings import SecuritySettings

    if (owner := find_owner(data)) is not None:
        return security_at(owner)
    if log.cluster is None or log.cluster.secret is None:
        return SecuritySettings()
    tls = log.cluster.security.beside(directory).tls
    return security_by_secret(directory / log.cluster.secret, tls)


def find_owner(data: Path) -> Endpoint | None:
    """None while nobody who lives says where to be found."""
    with suppress(DecodeError):
        return read_owner(data)
    return None


def read_owner(data: Path) -> Endpoint | None:
    """The same; raises `DecodeError` where the file is none of ours."""
    with suppress(FileNotFoundError, NotADirectoryError):
        endpoint = decode_endpoint((data / FILE_NAME).read_bytes())
        if is_running(endpoint.pid):
            return endpoint
    return None


def is_opened(data: Path) -> bool:
    """Whether another process has locked the directory, as far as the lock's file says."""
    try:
        pid = int((data / LOCK).read_bytes())
    except (OSError, ValueError):
        return False
    return pid != os.getpid() and is_running(pid)


def is_running(pid: int) -> bool:
    """Whether a process of that number exists, whoever owns it."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


async def take_or_find(data: Path) -> "EmbeddedLog | Endpoint":
    """The log, or where its owner is to be found: one who has only begun is waited for."""
    from asyncio import sleep  # late: `run` starts its first worker before it loads asyncio

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
        await sleep(LOOK_AGAIN_S)


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
    from headwater.core_log.client.settings import security_at
    from headwater.pipelines.running.data_directory_lock import kafka_settings

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


def keep_private(settings: "BrokerSettings") -> None:
    """Files of a log that authenticates are for its user only: they hold what passwords are checked
    against."""
    if not (settings.security.authenticates or settings.cluster_secret):
        return
    os.umask(0o077)
    metadata = settings.data / "log" / "__cluster_metadata-0"
    if metadata.is_dir():  # it may have been made before there were users
        metadata.chmod(0o700)
