"""How the program's own log lines look: one line each, on stderr, UTC, level first."""

import logging
import time
from collections.abc import Callable

FORMAT = "%(asctime)s.%(msecs)03dZ %(levelname)-7s %(name)s: %(message)s"


def set_up_logging(level: int, *, scrub: Callable[[str], str] = str) -> None:
    """Sends every log line of the process to stderr; `scrub` takes secrets out of all of it."""
    handler = logging.StreamHandler()
    handler.setFormatter(OneLine(scrub))
    lines = logging.getLogger()
    lines.handlers[:] = [handler]  # `basicConfig` would close the others, which are not ours
    lines.setLevel(level)


class OneLine(logging.Formatter):
    """An error's hint stays on the line of its error; a traceback keeps its own lines."""

    converter = staticmethod(time.gmtime)

    def __init__(self, scrub: Callable[[str], str] = str) -> None:
        super().__init__(FORMAT, "%Y-%m-%dT%H:%M:%S")
        self._scrub = scrub

    def format(self, record: logging.LogRecord) -> str:
        return self._scrub(super().format(record))

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802
        record.message = record.message.replace("\n  hint: ", "; hint: ").replace("\n", "\\n")
        return super().formatMessage(record)
