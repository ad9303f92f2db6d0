"""`headwater`: finds the command, runs it, and turns what it raised into words and an exit code."""

import importlib
import os
import signal
import sys
import traceback
from types import FrameType
from typing import Any, NoReturn

import click

from headwater.core_log.foundation.disk_space import disk_full, lacks_room
from headwater.core_log.foundation.errors import ConfigError, HeadwaterError, StorageFailed
from headwater.pipelines.terminal import exit_codes
from headwater.pipelines.terminal.exit_codes import Interrupted
from headwater.pipelines.terminal.output import (
    Output,
    close_stdout_quietly,
    default_color,
    envelope,
    error_facts,
    shared_options,
)

COMMANDS = (
    "init",
    "doctor",
    "check",
    "plan",
    "rebuild",
    "maintain",
    "verify",
    "rows",
    "replay",
    "test",
    "explain",
    "run",
    "status",
    "pause",
    "resume",
    "snapshot",
    "offsets",
    "schema",
    "drop",
    "dlq",
    "broker",
    "cluster",
    "topics",
    "groups",
    "tail",
    "produce",
    "log",
    "recover",
    "ui",
    "completion",
    "version",
)
"""Each is a click command of that name in `pipelines/commands/<name>.py`, imported when run."""
SHARED = {
    "init": "pipeline_file",
    "check": "pipeline_file",
    "explain": "pipeline_file",
    "pause": "control",
    "resume": "control",
    "snapshot": "control",
    "completion": "version",
}
"""Commands that share a module with others of their subject."""


class CommandTable(click.Group):
    """Imports a command when it is asked for, and ends every run with the right exit code."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        home = SHARED.get(cmd_name, cmd_name)
        module = importlib.import_module(f"headwater.pipelines.commands.{home}")
        command: click.Command = getattr(module, cmd_name)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and not args[0].startswith("-") and args[0] not in COMMANDS:
            import difflib

            near = difflib.get_close_matches(args[0], COMMANDS, n=1)
            guess = f", did you mean {near[0]!r}?" if near else ""
            ctx.fail(f"command {args[0]!r} is unknown{guess}")
        return super().resolve_command(ctx, args)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        # Errors of the other options must come out in the form that was asked for.
        ctx.obj = Output(as_json="--json" in args, has_color=default_color())
        try:
            return super().parse_args(ctx, args)
        except click.exceptions.NoArgsIsHelpError:
            raise
        except click.UsageError as error:
            _report_misuse(ctx.obj, error)
            ctx.exit(exit_codes.INVALID)

    def invoke(self, ctx: click.Context) -> Any:
        output = ctx.ensure_object(Output)
        try:
            return super().invoke(ctx)
        except HeadwaterError as error:
            code = exit_codes.exit_code_of(error)
            output.failure(error, code)
        except click.ClickException as error:
            code = exit_codes.INVALID
            _report_misuse(output, error)
        except (KeyboardInterrupt, click.Abort):
            code = exit_codes.INTERRUPTED
        except Interrupted as interrupted:
            code = interrupted.exit_code
        except BrokenPipeError:
            code = exit_codes.OK  # our reader has seen enough, as in `headwater tail t | head`
            close_stdout_quietly()
        except OSError as error:
            # Below the commands files are opened in good faith: the system's answer is the news.
            code = exit_codes.UNREACHABLE
            output.failure(system_error(error), code)
        except click.exceptions.Exit:
            raise
        except Exception as bug:
            code = exit_codes.INTERNAL
            _report_bug(output, bug)
        ctx.exit(code)


@click.command(
    "headwater", cls=CommandTable, context_settings={"help_option_names": ["-h", "--help"]}
)
@shared_options
def cli() -> None:
    """Headwater: what changes in your databases, through a durable log, into your tables."""


NO_MATRICES = ("OPENBLAS_NUM_THREADS", "1")
"""NumPy starts a thread per core that multiplies matrices, which nobody here does. It waits busily
for a while: a tenth of a second of every process's start. A value set by the user wins."""


def main() -> NoReturn:
    """The console script."""
    open_closed_streams()
    os.environ.setdefault(*NO_MATRICES)
    signal.signal(signal.SIGTERM, _end)
    cli(prog_name="headwater")
    raise SystemExit(exit_codes.OK)


def open_closed_streams() -> None:
    """Opens closed standard streams (`headwater run <&-`): the next files and sockets would get
    their numbers, and a worker would take one of them for its orders."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number that is free
    sys.stdin = sys.stdin or os.fdopen(0)
    sys.stdout = sys.stdout or os.fdopen(1, "w")
    sys.stderr = sys.stderr or os.fdopen(2, "w")


def system_error(error: OSError) -> HeadwaterError:
    if lacks_room(error):
        return disk_full(error)
    facts = {} if error.filename is None else {"path": str(error.filename)}
    problem = (error.strerror or str(error)).lower()
    return StorageFailed(f"the system says: {problem}", **facts)


def _end(number: int, _: FrameType | None) -> NoReturn:
    raise Interrupted(number)


def _report_misuse(output: Output, error: click.ClickException) -> None:
    """Click's own errors are about what was typed."""
    usage = error.ctx.get_usage() if isinstance(error, click.UsageError) and error.ctx else ""
    hint = f"{error.ctx.command_path} --help" if usage and error.ctx else ""  # type: ignore[attr-defined]
    problem = error.format_message()
    wrong = ConfigError(problem[:1].lower() + problem[1:].rstrip("."), hint=hint)
    if output.as_json:
        facts = error_facts(wrong, exit_codes.INVALID) | {"kind": "UsageError"}
        output.write_error(envelope(None, error=facts))
    if usage:
        click.echo(usage, err=True)
    click.echo(f"{output.style('error:', fg='red', bold=True)} {wrong}", err=True)


def _report_bug(output: Output, bug: Exception) -> None:
    """A bug of ours keeps its traceback."""
    if output.as_json:
        facts: dict[str, object] = {
            "kind": "InternalError",
            "problem": repr(bug),
            "hint": None,
            "facts": {},
        }
        facts["exit_code"] = exit_codes.INTERNAL
        output.write_error(envelope(None, error=output.redact(facts)))
    click.echo(output.scrub("".join(traceback.format_exception(bug))), err=True, nl=False)


if __name__ == "__main__":
    main()
