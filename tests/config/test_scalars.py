"""Plain scalars are those of YAML 1.2's core schema, and of nothing older."""

import math

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from headwater.config.document import resolve_scalar


@pytest.mark.parametrize("text", ["", "~", "null", "Null", "NULL"])
def test_nothing_is_written_in_five_ways(text: str) -> None:
    assert resolve_scalar(text) is None


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("true", True), ("True", True), ("TRUE", True),
        ("false", False), ("False", False), ("FALSE", False),
        ("0", 0), ("-19", -19), ("+12", 12), ("010", 10), ("0o14", 12), ("0xC", 12), ("0xff", 255),
        ("1.0", 1.0), (".5", 0.5), ("-.5", -0.5), ("12e03", 12_000.0), ("1e5", 1e5), ("1.", 1.0),
        ("-2E+05", -200_000.0), (".inf", math.inf), ("-.INF", -math.inf), ("+.Inf", math.inf),
    ],
)  # fmt: skip
def test_words_of_the_core_schema_have_their_values(text: str, value: object) -> None:
    found = resolve_scalar(text)

    assert (found, type(found)) == (value, type(value))


def test_nan_is_a_float() -> None:
    assert all(math.isnan(float(str(resolve_scalar(text)))) for text in (".nan", ".NaN", ".NAN"))


@pytest.mark.parametrize(
    "text",
    [
        "no", "No", "NO", "yes", "on", "off", "y", "n", "nO", "tRUE", "nULL",
        "12:30", "12:30:45", "190:20:30", "2001-12-14", "2001-12-14t21:59:43.10-05:00",
        "1_000", "0b1010", "-0o7", "+0xF", "0o8", "1e", ".", "-", "+", "...", "1.2.3", "=",
        "0x", "0o", ". 5", "1 000", "i.inf", "inf", "nan", "Infinity", "٣",
    ],
)  # fmt: skip
def test_everything_else_is_text(text: str) -> None:
    assert resolve_scalar(text) == text


def test_a_number_of_a_million_digits_costs_nothing_and_stays_text() -> None:
    digits = "9" * 1_000_000

    assert resolve_scalar(digits) == digits


@given(st.integers())
def test_every_integer_is_read_as_python_writes_it(number: int) -> None:
    assert resolve_scalar(str(number)) == number


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_every_float_is_read_as_python_writes_it(number: float) -> None:
    found = resolve_scalar(repr(number))

    assert (found, type(found)) == (number, float)


@given(st.from_regex(r"[-+.0-9a-zA-Z:_]{1,8}", fullmatch=True))
def test_a_value_of_yaml_1_1_is_the_same_here_or_text(text: str) -> None:
    """The older schema knows more words; where both know one, they agree but for octal zeros."""
    ours = resolve_scalar(text)

    try:
        theirs = yaml.safe_load(f"[{text}]")[0]
    except (yaml.YAMLError, ValueError):
        return  # dates that are none, flow syntax
    if isinstance(ours, int | float) and isinstance(theirs, int | float):
        is_octal_there = text.lstrip("+-").startswith("0") and theirs != ours
        assert theirs == ours or math.isnan(ours) or is_octal_there
    elif isinstance(ours, str) and ":" not in text:
        assert ours == text
