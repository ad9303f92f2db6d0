"""Events are Debezium's, field by field, but for a short list of differences with reasons."""

import os
from pathlib import Path

import pytest

from tests.databases import Guest
from tests.debezium import side_by_side
from tests.debezium.debezium_capture import MODES
from tests.debezium.differences import PERMITTED, compare
from tests.debezium.events import keep_run, kept_run, read_run

RECORD = "HEADWATER_RECORD_DEBEZIUM"
"""With it the run becomes the recorded one."""


async def test_events_are_those_of_a_recorded_run_of_debezium(guest: Guest) -> None:
    side_by_side.prepare(guest)

    ours = await side_by_side.alone(guest)

    theirs = {mode: kept_run(mode) for mode in MODES}
    assert sum(len(told.events) for told in theirs["plain"].values()) > 1_000
    compare(ours, theirs, PERMITTED, is_same_run=False)


@pytest.mark.compat
@pytest.mark.long("compat")
async def test_events_are_those_of_debezium_beside_us(guest: Guest, tmp_path: Path) -> None:
    side_by_side.prepare(guest)

    ours, files = await side_by_side.both(guest, tmp_path)

    if os.environ.get(RECORD):
        for mode, path in files.items():
            keep_run(path, mode)
    theirs = {mode: read_run(path) for mode, path in files.items()}
    needed = compare(ours, theirs, PERMITTED, is_same_run=True)
    assert {one.reason for one in PERMITTED} - needed == set(), "reasons that nothing needs"
