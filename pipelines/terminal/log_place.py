"""Where the log of a pipeline file is, whatever the rest of the file refers to."""

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from traceback import format_exception
from typing import TYPE_CHECKING, NamedTuple

from headwater.core_log.foundation.endpoint import FILE_NAME, Endpoint, decode_endpoint
from headwater.core_log.foundation.errors import ConfigError, DecodeError
from headwater.pipelines.terminal.output import Output

if TYPE_CHECKING:
    from headwater.core_log.foundation.settings import SecuritySettings
    from headwater.pipelines.file.log_settings import LogSettings


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
    from headwater.pipelines.file.pipeline_paths import files_at

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
    from headwater.core_log.foundation.process_switches import freeze_imports

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
    from headwater.core_log.client.local_security import security_at, security_by_secret
    from headwater.core_log.foundation.settings import SecuritySettings

    if (owner := find_owner(data)) is not None:
        return security_at(owner)
    if log.cluster is None or log.cluster.secret is None:
        return SecuritySettings()
    tls = log.cluster.security.beside(directory).tls
    return security_by_secret(directory / log.cluster.secret, tls)


PROGRESS = "headwater.progress"
"""Where sinks log how far their long work is."""


class Remarks(logging.Handler):
    """Errors, with the traceback of a crash, and warnings unless quiet; the rest as `-v` and `-vv`
    ask for it."""

    def __init__(self, output: Output) -> None:
        super().__init__()
        self._output = output

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno >= logging.WARNING:
            is_error = record.levelno >= logging.ERROR
            say = self._output.error if is_error else self._output.note
            say(f"{record.levelname.lower()}: {record.getMessage()}")
            if record.exc_info and record.exc_info[0] is not None:
                say("".join(format_exception(*record.exc_info)).rstrip())
        elif record.name == PROGRESS:
            self._output.note(record.getMessage())
        else:
            self._output.detail(f"{record.name}: {record.getMessage()}")


@contextmanager
def remarks_from_logs(output: Output) -> Iterator[None]:
    """Leaves logging as it was, since a command may run inside another program."""
    root, remarks = logging.getLogger(), Remarks(output)
    level = root.level
    root.setLevel((logging.WARNING, logging.INFO, logging.DEBUG)[min(output.verbosity, 2)])
    root.addHandler(remarks)
    logging.getLogger(PROGRESS).setLevel(logging.INFO)
    try:
        yield
    finally:
        root.removeHandler(remarks)
        root.setLevel(level)
        logging.getLogger(PROGRESS).setLevel(logging.NOTSET)


LOCK = "lock"


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
