"""Shows how far running pipelines are: live on a terminal, one line per interval elsewhere."""

import asyncio
import logging
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TextIO

from headwater.pipelines.watching.status_screen import (
    Facts,
    ScreenLine,
    log_line,
    log_problems,
    screen,
)

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

logger = logging.getLogger(__name__)

Look = Callable[[], Awaitable[Facts]]
"""Fetches the newest status snapshot, from the board or from the process that owns it."""

REFRESH_MS = 250
PAUSE_TO_WORK = 20
"""A picture of a thousand tables is drawn less often: this loop has other work."""
INTERVAL_MS = 10_000
SPARE_LINES = 2
"""Left of a terminal's height for the prompt, and for the log line that came last."""


class ProgressView:
    """Watches until it is cancelled; then the last picture stays on the terminal."""

    def __init__(
        self, look: Look, *, interval_ms: int = INTERVAL_MS, has_color: bool = True
    ) -> None:
        self._look, self._interval_ms, self._has_color = look, interval_ms, has_color

    async def watch(self, stream: TextIO | None = None) -> None:
        """Draws on `stream`, stderr by default: stdout carries data only."""
        target = stream or sys.stderr
        if is_drawable(target):
            await self._draw(target)
        else:
            await self._log()

    async def _draw(self, target: TextIO) -> None:
        from rich.console import Console
        from rich.live import Live

        console = Console(file=target, no_color=not self._has_color or None, highlight=False)
        live = Live(console=console, auto_refresh=False, vertical_overflow="crop")
        with live, _logs_above(live.console, target):
            while True:
                started_s = time.monotonic()
                snapshot = await self._look()
                if snapshot["pipelines"]:  # else it is only about to start
                    live.update(draw_status(snapshot, console), refresh=True)
                took_s = time.monotonic() - started_s
                await asyncio.sleep(max(REFRESH_MS / 1_000, took_s * PAUSE_TO_WORK))

    async def _log(self) -> None:
        while True:
            await asyncio.sleep(self._interval_ms / 1_000)
            for line in log_lines(await self._look()):
                logger.info("%s", line)


def log_lines(snapshot: Facts) -> list[str]:
    problems = [f"the log: {problem}" for problem in log_problems(snapshot)]
    lines = [log_line(name, pipeline) for name, pipeline in snapshot["pipelines"].items()]
    return [*problems, *lines]


def draw_status(snapshot: Facts, console: "Console") -> "Text":
    """The screen as it fits into a terminal."""
    lines = screen(
        snapshot,
        width=console.width,
        lines_max=max(console.height - SPARE_LINES, 1),
        has_unicode=speaks_unicode(console.encoding),
    )
    return rich_text(lines)


def rich_text(lines: Sequence[ScreenLine]) -> "Text":
    from rich.text import Text

    text = Text(no_wrap=True, overflow="crop", end="")
    for index, line in enumerate(lines):
        text.append("\n" if index else "")
        for span in line:
            text.append(span.text, style=span.style or None)
    return text


def is_drawable(stream: TextIO) -> bool:
    """Whether lines can be drawn over: a terminal that is more than a typewriter."""
    import os

    return stream.isatty() and os.environ.get("TERM", "") not in ("dumb", "unknown")


def speaks_unicode(encoding: str | None) -> bool:
    return (encoding or "").lower().replace("-", "") in ("utf8", "utf16", "utf32")


@contextmanager
def _logs_above(console: "Console", target: TextIO) -> Iterator[None]:
    """Log lines that go to the same terminal scroll by above the picture, instead of through it."""
    from rich.file_proxy import FileProxy

    above: Any = FileProxy(console, target)
    handlers = [
        handler
        for handler in logging.getLogger().handlers
        if isinstance(handler, logging.StreamHandler) and handler.stream is target
    ]
    for handler in handlers:
        handler.setStream(above)
    try:
        yield
    finally:
        for handler in handlers:
            handler.setStream(target)
