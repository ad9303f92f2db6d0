"""Finds the log that a command is about: `--bootstrap`, else `--data`, else ./data."""

import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from core_log.endpoint import FILE_NAME, decode_endpoint
from core_log.errors import ConfigError, LogUnavailable
from pipelines.output import Output

if TYPE_CHECKING:
    from core_log.client import KafkaLog

DEFAULT_DATA = Path("data")
PROBE_MS, PATIENCE_MS = 500, 3_000
"""A command that a person waits for gives up sooner than a pipeline does."""
UNKNOWN_TOPIC_MS = 300
"""A topic that is not there at once was mistyped, not made a moment ago."""


class LogAddress:
    """What the user said about where the log is; nobody is asked before `open`."""

    def __init__(self, data: Path | None, bootstrap: str | None) -> None:
        if data is not None and bootstrap is not None:
            raise ConfigError("the log is named twice", hint="give --data or --bootstrap, not both")
        self._data, self._bootstrap = data or DEFAULT_DATA, bootstrap

    @asynccontextmanager
    async def open(self, *, retry_for_ms: int = PATIENCE_MS) -> AsyncIterator["KafkaLog"]:
        """A client of the log; whether the log answers at all is seen within a few seconds."""
        from pipelines.remarks import remarks_from_logs

        output = click.get_current_context().find_object(Output)
        assert output is not None, "the root command makes the Output of a run"
        with remarks_from_logs(output):
            async with self._client(retry_for_ms) as log:
                yield log

    @asynccontextmanager
    async def _client(self, retry_for_ms: int) -> AsyncIterator["KafkaLog"]:
        from core_log.client import KafkaLog, KafkaSettings

        address = self.find()
        probe = KafkaLog(KafkaSettings(bootstrap=address, retry_for_ms=PROBE_MS))
        try:
            await probe.is_exactly_once()
        except LogUnavailable as error:
            raise self._unreachable(address, error) from error
        finally:
            await probe.close()
        log = KafkaLog(
            KafkaSettings(
                bootstrap=address,
                retry_for_ms=retry_for_ms,
                unknown_topic_for_ms=UNKNOWN_TOPIC_MS,
            )
        )
        try:
            yield log
        finally:
            await log.close()

    def find(self) -> list[str]:
        """HOST:PORT of brokers."""
        if self._bootstrap is not None:
            return [part.strip() for part in self._bootstrap.split(",") if part.strip()]
        path = self._data / FILE_NAME
        try:
            endpoint = decode_endpoint(path.read_bytes())
        except FileNotFoundError:
            raise self._nobody() from None
        except PermissionError:
            raise LogUnavailable(
                "the log of this data directory belongs to another user",
                file=str(path),
                hint="run the command as the user who runs the broker, or give --bootstrap",
            ) from None
        if not is_running(endpoint.pid):
            raise self._nobody()
        return [endpoint.kafka]

    def _nobody(self) -> LogUnavailable:
        return LogUnavailable(
            "no broker is running on this data directory",
            data=str(self._data),
            hint=f"headwater broker --data {self._data}",
        )

    def _unreachable(self, address: list[str], error: LogUnavailable) -> LogUnavailable:
        if self._bootstrap is None:
            return self._nobody()
        return LogUnavailable(error.problem, hint=error.hint, address=",".join(address))


def is_running(pid: int) -> bool:
    """Whether a process of that number exists, whoever owns it."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def log_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Declares the options that say which log is meant; they arrive as `data` and `bootstrap`."""
    for name, kind, metavar, explanation in (
        (
            "--bootstrap",
            click.STRING,
            "HOST:PORT",
            "A broker of the log: ours, Apache Kafka's or another that speaks its protocol.",
        ),
        (
            "--data",
            click.Path(path_type=Path),
            "DIR",
            "Data directory of a running broker.  [default: data]",
        ),
    ):
        command = click.option(name, type=kind, metavar=metavar, help=explanation)(command)
    return command
