"""The console at the end of a demo: its link, and its pages for as long as a person wants."""

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

COMMAND = (sys.executable, "-m", "headwater.pipelines.cli", "ui", "--no-open", "--http")
ADDRESS = "127.0.0.1:0"
IN_A_TERMINAL = "in a terminal the demo ends with the link of its console: headwater ui"


@contextmanager
def console_over(directory: Path, environment: Mapping[str, str]) -> Iterator[str]:
    """The link of a console over the pipeline of a directory."""
    process = subprocess.Popen(
        [*COMMAND, ADDRESS],
        cwd=directory,
        env=dict(environment),
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None, "it is a pipe"
    try:
        link = process.stdout.readline().strip()
        assert link, "the console has ended: see above"
        yield link
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate()


def has_terminal() -> bool:
    """Whether somebody can look, and end it with Ctrl-C."""
    return sys.stdout.isatty()


def show_console(
    say: Callable[[str], None], directory: Path, environment: Mapping[str, str]
) -> None:
    """Returns with Ctrl-C."""
    with console_over(directory, environment) as link, suppress(KeyboardInterrupt):
        say(f"the console: {link}  (Ctrl-C ends the demo)")
        signal.pause()
