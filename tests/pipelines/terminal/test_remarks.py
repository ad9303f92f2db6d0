"""What a command says on stderr of that which the code below it logs."""

import logging

import pytest

from headwater.core_log.foundation.errors import failure_of
from headwater.pipelines.terminal.output import Output, remarks_from_logs


def test_a_crash_is_said_with_the_traceback_that_its_hint_promises(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with remarks_from_logs(Output()):
        try:
            int("seven")
        except ValueError as bug:
            logging.getLogger("verify").error("items is not compared", exc_info=bug)
            failure = failure_of(bug)

    said = capsys.readouterr().err
    assert "its traceback is in the log of the process" in str(failure)
    assert said.startswith("error: items is not compared\nTraceback (most recent call last):\n")
    assert 'int("seven")' in said
    assert said.endswith("ValueError: invalid literal for int() with base 10: 'seven'\n")


def test_an_error_without_an_exception_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with remarks_from_logs(Output()):
        logging.getLogger("verify").error("items is not compared")

    assert capsys.readouterr().err == "error: items is not compared\n"


def test_a_quiet_command_says_errors_and_no_warnings(capsys: pytest.CaptureFixture[str]) -> None:
    with remarks_from_logs(Output(is_quiet=True)):
        logging.getLogger("verify").warning("items is compared again")
        logging.getLogger("verify").error("items is not compared")

    assert capsys.readouterr().err == "error: items is not compared\n"
