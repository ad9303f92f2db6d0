"""What a plain scalar means in YAML 1.2, where `no` is a word and 12:30 is text."""

import math
import re

Scalar = str | int | float | bool | None

NULLS = {"", "~", "null", "Null", "NULL"}
BOOLEANS = {
    "true": True,
    "True": True,
    "TRUE": True,
    "false": False,
    "False": False,
    "FALSE": False,
}
DECIMAL = re.compile(r"[-+]?[0-9]+")
OCTAL = re.compile(r"0o[0-7]+")
HEXADECIMAL = re.compile(r"0x[0-9a-fA-F]+")
FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
INFINITY = re.compile(r"([-+]?)\.(?:inf|Inf|INF)")
NOT_A_NUMBER = {".nan", ".NaN", ".NAN"}
DIGITS_MAX = 300
"""Longer numbers stay text: turning them into numbers costs time squared, and fits no column."""


def resolve_scalar(text: str) -> Scalar:
    """The value of a scalar that is not quoted (YAML 1.2.2, chapter 10.3.2)."""
    if text in NULLS:
        return None
    if text in BOOLEANS:
        return BOOLEANS[text]
    if text[0] not in "+-.0123456789" or len(text) > DIGITS_MAX:
        return text
    if DECIMAL.fullmatch(text):
        return int(text)
    if OCTAL.fullmatch(text):
        return int(text[2:], 8)
    if HEXADECIMAL.fullmatch(text):
        return int(text[2:], 16)
    if FLOAT.fullmatch(text):
        return float(text)
    if infinity := INFINITY.fullmatch(text):
        return -math.inf if infinity[1] == "-" else math.inf
    return math.nan if text in NOT_A_NUMBER else text
