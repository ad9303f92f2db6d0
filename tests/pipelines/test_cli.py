"""Every command keeps the rules of the command line: one envelope, exit codes, no tracebacks."""

import ast
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from headwater.core_log.foundation import errors
from headwater.core_log.foundation.errors import (
    ConfigError,
    CorruptLog,
    DirectoryInUse,
    HeadwaterError,
    LogUnavailable,
)
from headwater.pipelines.cli import COMMANDS, cli
from headwater.pipelines.terminal import exit_codes
from headwater.pipelines.terminal.output import Output, printable, table
from tests.pipelines.conftest import Headwater

ROOT = Path(__file__).resolve().parents[2]


def all_commands() -> Iterator[tuple[str, click.Command]]:
    root = click.Context(cli)
    waiting = [(name, cli.get_command(root, name)) for name in COMMANDS]
    while waiting:
        name, command = waiting.pop()
        assert command is not None
        if isinstance(command, click.Group):
            waiting += [(f"{name} {inner}", each) for inner, each in command.commands.items()]
        else:
            yield name, command


@pytest.mark.parametrize("command", [pytest.param(each, id=name) for name, each in all_commands()])
def test_every_command_has_the_shared_options_and_says_what_it_does(
    command: click.Command,
) -> None:
    options = {option.name for option in command.params}

    assert {"json", "quiet", "verbose", "no_color"} <= options
    assert command.help and command.help.strip().split("\n")[0].endswith((".", "000"))


PAGES = [ROOT / "README.md", *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/*/README.md")]
WRITTEN = re.compile(r"headwater ([a-z]+(?: [a-z]+)?)([^`\n|#]*)")


def test_every_option_that_a_page_writes_behind_a_command_is_one_of_it() -> None:
    options = {
        name: {each for param in command.params for each in (*param.opts, *param.secondary_opts)}
        for name, command in all_commands()
    }
    wrong = [
        (page.name, called, option)
        for page in PAGES
        for called, rest in WRITTEN.findall(page.read_text())
        for name in {called, called.split()[0]} & options.keys()
        for option in re.findall(r"(?<= )-{1,2}[a-z][a-z-]*", rest)
        if option not in options[name]
    ]

    assert not wrong


def test_an_unknown_command_is_named_and_the_nearest_is_offered(headwater: Headwater) -> None:
    ran = headwater("topcs")

    assert ran.code == exit_codes.INVALID
    assert ran.data == ""
    assert "command 'topcs' is unknown, did you mean 'topics'?" in ran.remarks


def test_a_mistyped_option_ends_in_an_envelope_where_one_was_asked_for(
    headwater: Headwater,
) -> None:
    ran = headwater("tail", "--json", "--frm", "earliest", "orders")

    assert ran.code == exit_codes.INVALID
    assert ran.envelope["ok"] is False
    assert ran.envelope["error"]["kind"] == "UsageError"
    assert ran.envelope["error"]["hint"] == "headwater tail --help"


def test_an_option_in_the_wrong_place_ends_in_the_same_form(headwater: Headwater) -> None:
    ran = headwater("--once", "status", "--json")

    assert ran.code == exit_codes.INVALID
    assert ran.envelope["error"]["kind"] == "UsageError"
    assert "error: no such option" in ran.remarks.lower()


@pytest.mark.slow
@pytest.mark.parametrize("command", ["version", "nope"])
def test_an_answer_that_cannot_be_written_is_told_on_stderr(command: str) -> None:
    with Path("/dev/full").open("w") as full:
        ran = subprocess.run(
            [sys.executable, "-m", "headwater.pipelines.cli", command, "--json"],
            cwd=ROOT,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )

    assert ran.returncode in (exit_codes.INVALID, exit_codes.UNREACHABLE)
    assert "error: " in ran.stderr
    assert "Traceback" not in ran.stderr and "Exception" not in ran.stderr


def test_the_version_is_data(headwater: Headwater) -> None:
    plain, asked = headwater("version"), headwater("version", "--json")

    assert plain.data.startswith("headwater ")
    assert asked.envelope["data"]["headwater"] in plain.data


@pytest.mark.parametrize(("speed", "said"), [("python", "plain Python"), ("fast", "compiled")])
def test_the_version_says_how_decoders_run(
    headwater: Headwater, monkeypatch: pytest.MonkeyPatch, speed: str, said: str
) -> None:
    monkeypatch.setenv("HEADWATER_SPEED", speed)

    plain, asked = headwater("version"), headwater("version", "--json")

    assert asked.envelope["data"]["decoders"] == speed
    assert said in plain.data


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_is_a_script_for_the_shell(headwater: Headwater, shell: str) -> None:
    ran = headwater("completion", shell)

    assert "_HEADWATER_COMPLETE" in ran.data
    assert "to install it" in ran.remarks


def test_quiet_leaves_nothing_but_data(headwater: Headwater) -> None:
    assert headwater("completion", "bash", "-q").remarks == ""


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ConfigError("x"), exit_codes.INVALID),
        (LogUnavailable("x"), exit_codes.UNREACHABLE),
        (DirectoryInUse("x"), exit_codes.UNREACHABLE),
        (CorruptLog("x"), exit_codes.DIFFERENT),
        (HeadwaterError("x"), exit_codes.INTERNAL),
    ],
)
def test_an_error_ends_in_the_exit_code_of_its_class(error: HeadwaterError, code: int) -> None:
    assert exit_codes.exit_code_of(error) == code


def test_every_error_that_a_user_can_meet_has_an_exit_code() -> None:
    kinds = [
        kind
        for kind in vars(errors).values()
        if isinstance(kind, type) and issubclass(kind, HeadwaterError)
    ]

    uncoded = {kind for kind in kinds if not exit_codes.BY_ERROR.keys() & set(kind.__mro__)}

    assert uncoded == {HeadwaterError, errors.Fenced}, "no command writes under a name to be taken"


def test_an_error_says_what_is_so_where_and_what_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    error = LogUnavailable("nobody answers", hint="start it", address="here")

    Output(as_json=True, has_color=False).failure(error, 3)

    captured = capsys.readouterr()
    assert captured.err == "error: nobody answers (address='here')\n  hint: start it\n"
    assert json.loads(captured.out)["error"] == {
        "kind": "LogUnavailable",
        "problem": "nobody answers",
        "hint": "start it",
        "facts": {"address": "here"},
        "exit_code": 3,
    }


def test_a_table_is_aligned_and_cuts_nothing() -> None:
    lines = table(("NAME", "COUNT"), [("a", 5), ("b" * 40, 1_000), ("c", None)])

    assert lines == [
        f"{'NAME':<40}  COUNT",
        f"{'a':<40}      5",
        f"{'b' * 40}  1,000",
        f"{'c':<40}      -",
    ]


def test_foreign_text_cannot_steer_the_terminal() -> None:
    assert printable("a\x1b[31mb\nc\u202ed é 😀") == r"a\x1b[31mb\nc\u202ed é 😀"


def test_run_starts_its_worker_before_it_loads_anything_heavy() -> None:
    program = (
        "import sys; sys.argv = ['headwater', 'run', 'no-such-directory/pipeline.yaml']\n"
        "import headwater.pipelines.running.worker_start as spawning\n"
        "def spawn(**_): print(sorted(sys.modules)); sys.exit()\n"
        "spawning.spawn = spawn\n"
        "from headwater.pipelines.cli import main\n"
        "main()"
    )

    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False
    )

    assert "'click'" in done.stdout
    assert not {"'pydantic'", "'asyncio'", "'yaml'", "'numpy'"} & set(done.stdout.split(", "))


@pytest.mark.slow
def test_a_command_imports_only_what_it_needs() -> None:
    program = (
        "import sys; sys.argv = ['headwater', 'version']\n"
        "from headwater.pipelines.cli import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "print(sorted(name for name in sys.modules if '.' not in name))"
    )

    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )

    loaded = set(ast.literal_eval(done.stdout.splitlines()[-1]))
    assert not loaded & {"asyncio", "pydantic", "rich", "numpy", "pyarrow", "crc32c", "orjson"}


@pytest.mark.slow
def test_numpy_starts_no_threads_that_multiply_matrices() -> None:
    """One stays: the one that imports it."""
    program = (
        "import os, sys; sys.argv = ['headwater', 'version']\n"
        "from headwater.pipelines.cli import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "import numpy\n"
        "print(len(os.listdir('/proc/self/task')))"
    )

    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )

    assert done.stdout.splitlines()[-1] == "1"


def test_the_options_of_every_command_may_stand_before_its_name(headwater: Headwater) -> None:
    before, after = headwater("--json", "-q", "version"), headwater("version", "--json", "-q")
    refused = headwater("--json", "version", "--nonsense")

    assert before == after
    assert before.envelope["ok"]
    assert refused.envelope["error"]["kind"] == "UsageError"
