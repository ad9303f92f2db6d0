"""The program's log lines take the place of others', which stay whole for whoever has them."""

import logging
from pathlib import Path

from headwater.config.redaction import set_up_logging


def test_handlers_of_others_are_replaced_and_left_open(tmp_path: Path) -> None:
    lines, other = logging.getLogger(), logging.FileHandler(tmp_path / "others.log")
    handlers, level = lines.handlers[:], lines.level
    lines.handlers[:] = [other]
    try:
        set_up_logging(logging.INFO)
        found, found_level = lines.handlers[:], lines.level
    finally:
        lines.handlers[:] = handlers
        lines.setLevel(level)

    assert other not in found
    assert (len(found), found_level) == (1, logging.INFO)
    assert other.stream is not None, "it is open"
    other.close()
