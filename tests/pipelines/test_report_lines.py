"""What a task reports arrives in another process as it was said."""

import pytest

from headwater.core_log.foundation.errors import DecodeError
from headwater.pipelines.reports import (
    DeadLettersAdded,
    GaugesRead,
    OffsetsApplied,
    ReadProgress,
    RemarksMade,
    Report,
    RowsMoved,
    SliceApplied,
    StateChanged,
    TaskState,
    encode_report,
    read_object,
    report_from_json,
)

REPORTS: list[Report] = [
    StateChanged("shop", "source", "", TaskState.QUARANTINED, "no such slot\n  hint: make it"),
    GaugesRead("shop", "source", "retained_wal_bytes", 17, None),
    RemarksMade("shop", "source", "publication", "it lacks a table", "ALTER PUBLICATION ..."),
    RowsMoved("shop", "sql", "public.orders", 17, 1_024, 1_700_000_000_000, 1_700_000_000_123),
    ReadProgress("shop", "source", "ünïcode", 5, None, None, 1 << 40, False),
    OffsetsApplied("shop", "source", {"file/a.csv": "12", "stream": "0/9A3F10"}),
    DeadLettersAdded("shop", "sql", "public.orders", 3, "a number is no date"),
    SliceApplied("shop", "sql", 1_700, 1_800, 1_900, 17, 1_024, ("public.orders",), 42),
]


@pytest.mark.parametrize("report", REPORTS, ids=lambda report: type(report).__name__)
def test_a_report_comes_back_from_its_line_as_it_was(report: Report) -> None:
    line = encode_report(report)

    assert line.count(b"\n") == 1 and line.endswith(b"\n")
    assert report_from_json(read_object(line)) == report


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"17",
        b"Traceback (most recent call last):",
        b'{"kind":"Rumour"}',
        b'{"kind":"Moved","pipeline":"shop"}',
        b'{"kind":"StateChanged","pipeline":"p","task":"u","table":"","state":"tired","reason":""}',
    ],
)
def test_a_line_that_is_no_report_is_named_as_such(line: bytes) -> None:
    with pytest.raises(DecodeError, match="the line of another process"):
        report_from_json(read_object(line))
