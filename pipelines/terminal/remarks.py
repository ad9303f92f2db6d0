"""Log lines of the parts that a command uses, told as its own remarks while it runs."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from headwater.pipelines.terminal.output import Output

PROGRESS = "headwater.progress"
"""Where sinks log how far their long work is."""


class Remarks(logging.Handler):
    """Errors always, warnings unless quiet, the rest as `-v` and `-vv` ask for it."""

    def __init__(self, output: Output) -> None:
        super().__init__()
        self._output = output

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno >= logging.WARNING:
            self._output.note(f"{record.levelname.lower()}: {record.getMessage()}")
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
