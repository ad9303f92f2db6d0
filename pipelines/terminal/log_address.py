"""Finds the log that a command is about: --bootstrap, -f, --data, ./pipeline.yaml or ./data."""

import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from headwater.core_log.foundation.endpoint import FILE_NAME, Endpoint
from headwater.core_log.foundation.errors import ConfigError, DirectoryInUse, LogUnavailable
from headwater.pipelines.terminal.log_place import (
    PROPERTIES,
    find_owner,
    is_opened,
    place_in,
    read_owner,
    take,
    take_or_find,
)
from headwater.pipelines.terminal.output import Output, remarks_from_logs

if TYPE_CHECKING:
    from headwater.core_log.client import KafkaLog
    from headwater.core_log.embedded import EmbeddedLog
    from headwater.core_log.foundation.settings import SecuritySettings
    from headwater.pipelines.file.loader import LoadedPipeline
    from headwater.pipelines.running.owner_client import LockHolder

DEFAULT_DATA, DEFAULT_FILE = Path("data"), Path("pipeline.yaml")
FILE_KEY = "headwater.file"
"""Under which the run of a command keeps what -f said."""
PROBE_MS, PATIENCE_MS = 500, 3_000
"""A command that a person waits for gives up sooner than a pipeline does. One of several brokers
may just have died, so that another one is asked."""
HTTP_POLL_S = 0.02
UNKNOWN_TOPIC_MS = 300
"""A topic that is not there at once was mistyped, not made a moment ago."""


class LogAddress:
    """The user's options for the place of the log; nobody is asked before `open`."""

    def __init__(self, data: Path | None, bootstrap: str | None) -> None:
        file = chosen_file()
        if bootstrap is not None and (data is not None or file is not None):
            raise ConfigError("the log is named twice", hint="use -f and --data, or --bootstrap")
        if data is None and bootstrap is None and file is None and DEFAULT_FILE.is_file():
            file = DEFAULT_FILE
        self.file = file
        """The pipeline file, or the directory of them, that said where the log is."""
        self._given, self._data, self._bootstrap = data, data or DEFAULT_DATA, bootstrap
        self._security: SecuritySettings | None = None
        if file is not None:
            place = place_in(file, data)
            self._data, self._bootstrap = place.data, ",".join(place.bootstrap) or None
            self._security = place.security

    @property
    def is_reached_from_elsewhere(self) -> bool:
        """Whether runs on other machines may share the log."""
        return self._bootstrap is not None

    @property
    def arguments(self) -> list[str]:
        """Options by which another command finds the same log."""
        if self.file is not None:
            place = [] if self._given is None else [f"--data={self._given}"]
            return [f"--file={self.file}", *place]
        if self._bootstrap is not None:
            return [f"--bootstrap={self._bootstrap}"]
        return [f"--data={self._data}"]

    def load(self, output: Output) -> "Sequence[LoadedPipeline]":
        """The pipelines of the file; none where no file was named."""
        from headwater.pipelines.file.loader import load_given

        return [] if self.file is None else load_given(output, self.file, data=self._given)

    def load_named(self, output: Output, pipeline: str, *, known: str) -> "LoadedPipeline":
        """The pipeline of this name; `known` is what only a pipeline file knows."""
        if self.file is None:
            raise ConfigError(f"{known} known only from a pipeline file", hint="name it: -f FILE")
        found = {each.name: each for each in self.load(output)}
        if pipeline not in found:
            raise ConfigError(
                "the file does not have a pipeline of this name",
                hint=f"pipelines of the file: {', '.join(found)}",
                file=str(self.file),
                pipeline=pipeline,
            )
        return found[pipeline]

    @asynccontextmanager
    async def open(self, *, retry_for_ms: int = PATIENCE_MS) -> AsyncIterator["KafkaLog"]:
        """A client of the log; whether the log answers at all is seen within a few seconds."""
        output = click.get_current_context().find_object(Output)
        assert output is not None, "the root command makes the Output of a run"
        with remarks_from_logs(output):
            async with self._client(retry_for_ms) as log:
                yield log

    @asynccontextmanager
    async def open_or_own(self) -> AsyncIterator["KafkaLog"]:
        """The same; where nobody runs, but the directory holds a log, this process owns it for as
        long as the block lasts."""
        if self._bootstrap is not None or not (self._data / PROPERTIES).is_file():
            async with self.open() as log:
                yield log
            return
        output = click.get_current_context().find_object(Output)
        assert output is not None, "the root command makes the Output of a run"
        self._describe()
        with remarks_from_logs(output):
            found = await take_or_find(self._data)
            while isinstance(found, Endpoint):
                async with AsyncExitStack() as joined:
                    try:
                        log = await joined.enter_async_context(self._client(PATIENCE_MS))
                    except LogUnavailable:
                        found = await self._after(found)
                        continue
                    with _explain_loan(self._data, found):
                        yield log
                    return
            try:
                yield found
            finally:
                await found.close()

    async def _after(self, gone: Endpoint) -> "EmbeddedLog | Endpoint":
        """Returns the next owner of the log now that this one no longer answers. A number of a
        process may be another's by now; the lock says who lives."""
        try:
            return await take(self._data)
        except DirectoryInUse:
            if find_owner(self._data) == gone:
                raise self._nobody() from None
        return await take_or_find(self._data)

    @asynccontextmanager
    async def _client(self, retry_for_ms: int) -> AsyncIterator["KafkaLog"]:
        from headwater.core_log.foundation.speed import freeze_imports

        with freeze_imports():
            from headwater.core_log.client import FIRST_ANSWER_MS, KafkaLog, KafkaSettings
            from headwater.core_log.client.settings import security_at
            from headwater.core_log.foundation.settings import SecuritySettings

        address = self.find()
        security = self._security or SecuritySettings()
        if self._bootstrap is None:
            security = security_at(self._endpoint())
        probe = KafkaLog(
            KafkaSettings(
                bootstrap=address,
                security=security,
                retry_for_ms=PROBE_MS if len(address) == 1 else PATIENCE_MS,
                first_answer_ms_max=FIRST_ANSWER_MS,
            )
        )
        try:
            await probe.is_exactly_once()
        except LogUnavailable as error:
            raise self._unreachable(error) from error
        finally:
            await probe.close()
        log = KafkaLog(
            KafkaSettings(
                bootstrap=address,
                security=security,
                retry_for_ms=retry_for_ms,
                unknown_topic_for_ms=UNKNOWN_TOPIC_MS,
            )
        )
        try:
            yield log
        finally:
            await log.close()

    def find(self) -> list[str]:
        if self._bootstrap is not None:
            return [part.strip() for part in self._bootstrap.split(",") if part.strip()]
        return [self._endpoint().kafka]

    def owner(self) -> "LockHolder":
        """The process that runs pipelines over this log, on this machine."""
        from headwater.pipelines.running.owner_client import LockHolder

        endpoint = self._endpoint()
        deadline = time.monotonic() + PATIENCE_MS / 1_000
        while endpoint.http == "" and time.monotonic() < deadline:  # it is still coming
            time.sleep(HTTP_POLL_S)
            endpoint = self._endpoint()
        if not endpoint.http or endpoint.token is None:
            who = f"`{endpoint.command}`" if endpoint.command else "a broker"
            raise LogUnavailable(
                f"{who} is running on this log, and no pipeline",
                data=str(self._data),
                hint=self._run_hint(),
            )
        return LockHolder(endpoint.http, endpoint.token)

    def running_owner(self) -> "LockHolder | None":
        """None where no pipeline is running."""
        try:
            return self.owner()
        except LogUnavailable:
            return None

    def _endpoint(self) -> Endpoint:
        """One who has only begun says a little later where he is."""
        deadline = time.monotonic() + PATIENCE_MS / 1_000
        while (endpoint := self._describe()) is None:
            if time.monotonic() >= deadline or not is_opened(self._data):
                raise self._nobody()
            time.sleep(HTTP_POLL_S)
        return endpoint

    def _describe(self) -> Endpoint | None:
        try:
            return read_owner(self._data)
        except PermissionError:
            raise LogUnavailable(
                "the log of this data directory belongs to another user",
                file=str(self._data / FILE_NAME),
                hint="run the command as the user who runs the broker, or give --bootstrap",
            ) from None

    def _nobody(self) -> LogUnavailable:
        if self.file is not None or self._bootstrap is not None:
            return LogUnavailable(
                "no pipeline is running on this log", data=str(self._data), hint=self._run_hint()
            )
        return LogUnavailable(
            "the data directory has no running broker",
            data=str(self._data),
            hint=f"headwater broker --data {self._data}, or headwater run with a pipeline file",
        )

    def _run_hint(self) -> str:
        place = f" --data {self._given}" if self._given else ""
        return f"headwater run {self.file or DEFAULT_FILE}{place}"

    def _unreachable(self, error: LogUnavailable) -> LogUnavailable:
        if self._bootstrap is None:
            return self._nobody()
        return error


@contextmanager
def _explain_loan(data: Path, endpoint: Endpoint) -> Iterator[None]:
    """Says that it is nobody's fault when the command ends that has lent its log to this one."""
    try:
        yield
    except LogUnavailable as error:
        if endpoint.command is None or find_owner(data) == endpoint:
            raise
        raise LogUnavailable(
            f"the log belonged to `{endpoint.command}`, which has ended",
            hint="run this command again",
            process=endpoint.pid,
        ) from error


def chosen_file() -> Path | None:
    """Returns the -f of the command that runs now."""
    context = click.get_current_context(silent=True)
    found = None if context is None else context.meta.get(FILE_KEY)
    return found if isinstance(found, Path) else None


def _keep_file(context: click.Context, _: click.Parameter, file: Path | None) -> None:
    context.meta[FILE_KEY] = file


def log_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Declares the options that say which log is meant; it arrives as the argument `address`."""

    @wraps(command)
    def run(*given: Any, data: Path | None, bootstrap: str | None, **named: Any) -> Any:
        return command(*given, address=LogAddress(data, bootstrap), **named)

    with_options: Callable[..., Any] = run
    for names, kind, metavar, explanation in (
        (
            ("--bootstrap",),
            click.STRING,
            "HOST:PORT",
            "A broker of the log: ours, Apache Kafka's or another that speaks its protocol.",
        ),
        (
            ("--data",),
            click.Path(path_type=Path),
            "DIR",
            "Data directory of the log, in place of `log.path` of the file.  [default: data]",
        ),
    ):
        option = click.option(*names, type=kind, metavar=metavar, help=explanation)
        with_options = option(with_options)
    return file_option(with_options)


def file_option(command: Callable[..., Any]) -> Callable[..., Any]:
    return click.option(
        "-f",
        "--file",
        type=click.Path(path_type=Path, exists=True),
        metavar="FILE",
        expose_value=False,
        callback=_keep_file,
        help="Pipeline file of the log.  [default: pipeline.yaml, if it exists]",
    )(command)


def data_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """The option of commands whose argument is the pipeline file."""
    return click.option(
        "--data",
        type=click.Path(path_type=Path, file_okay=False),
        metavar="DIR",
        help="Directory of the log, in place of `log.path` of the file.",
    )(command)
