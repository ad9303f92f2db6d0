"""Durations and sizes as people write them, with few imports, because commands parse options
first."""

import re
from typing import Any

DURATION = r"(\d{1,12}(?:\.\d{1,9})?)\s*(ms|s|m|h|d|w)"
SIZE = r"(\d{1,15}(?:\.\d{1,9})?)\s*([kKMGT]i?)?B"
LARGEST = 2**63 - 1
"""The largest number that the log's own formats can hold."""
MS_PER_UNIT = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
BYTES_PER_PREFIX = {"": 1} | {
    letter + kind: base**power
    for power, letter in enumerate("KMGT", 1)
    for kind, base in (("", 1_000), ("I", 1_024))
}


def parse_duration_ms(text: Any) -> Any:
    """Returns `250ms`, `5s`, `10m`, `12h`, `7d` or `2w` as milliseconds; a number is returned
    unchanged."""
    if not isinstance(text, str):
        return text
    match = re.fullmatch(DURATION, text.strip())
    if match is None:
        raise ValueError("a duration is a number and a unit, such as 250ms, 5s, 10m, 12h or 7d")
    return _bound(float(match[1]) * MS_PER_UNIT[match[2]])


def parse_size_bytes(text: Any) -> Any:
    """Returns `64KiB`, `8MiB`, `20GiB`, `1MB` or `512B` as bytes; a number is returned
    unchanged."""
    if not isinstance(text, str):
        return text
    match = re.fullmatch(SIZE, text.strip())
    if match is None:
        raise ValueError("a size is a number and a unit, such as 512B, 64KiB, 8MiB or 20GiB")
    return _bound(float(match[1]) * BYTES_PER_PREFIX[(match[2] or "").upper()])


def _bound(value: float) -> int:
    if value > LARGEST:
        raise ValueError("the number is too large")
    return round(value)
