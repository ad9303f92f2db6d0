"""How the program's own log lines look: one line each, on stderr, UTC, level first."""

import logging
import time

FORMAT = "%(asctime)s.%(msecs)03dZ %(levelname)-7s %(name)s: %(message)s"


def set_up_logging(level: int) -> None:
    """Sends every log line of the process to stderr."""
    handler = logging.StreamHandler()
    handler.setFormatter(OneLine(FORMAT, "%Y-%m-%dT%H:%M:%S"))
    logging.basicConfig(level=level, handlers=[handler], force=True)


class OneLine(logging.Formatter):
    """An error's hint stays on the line of its error; a traceback keeps its own lines."""

    converter = staticmethod(time.gmtime)

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802
        record.message = record.message.replace("\n  hint: ", "; hint: ").replace("\n", "\\n")
        return super().formatMessage(record)
