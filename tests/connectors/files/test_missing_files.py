"""A path without files is told apart from one that has no news."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from headwater.connectors.files.settings import FilesSettings
from headwater.connectors.files.source import FilesSource
from headwater.connectors.source import Remark, SourceContext, SourceReport
from headwater.core_log.foundation.errors import SourceRejected
from tests.fakes import SimulatedClock


def a_source(
    directory: Path,
    path: str,
    tell: Callable[[SourceReport], None],
    *,
    until_end: bool,
    allow_empty: bool,
) -> FilesSource:
    settings = FilesSettings.model_validate({"path": path, "allow_empty": allow_empty})
    context = SourceContext("shop", directory, SimulatedClock(), tell, until_end=until_end)
    return FilesSource(settings, context)


@pytest.mark.parametrize(
    ("path", "problem"),
    [
        ("./nowhere", "no file matches"),
        ("./nowhere/*.csv", "no file matches"),
        ("./in/*.jsonl", "no file matches"),
        ("./in/b.csv", "no file matches"),
        ("./empty", "no file matches"),
        ("./odd", "none of the files has a known ending"),
    ],
)
async def test_a_source_that_is_to_end_fails_without_files_it_can_read(
    tmp_path: Path, path: str, problem: str
) -> None:
    for name in ("in", "empty", "odd"):
        (tmp_path / name).mkdir()
    (tmp_path / "in" / "a.csv").write_text("id\n1\n")
    (tmp_path / "odd" / "a.xyz").write_text("id\n1\n")
    source = a_source(tmp_path, path, lambda _: None, until_end=True, allow_empty=False)

    with pytest.raises(SourceRejected, match=problem):
        async for _ in source.changes({}):
            pass


async def test_a_source_that_may_be_empty_ends_without_files(tmp_path: Path) -> None:
    told: list[SourceReport] = []
    source = a_source(tmp_path, "./nowhere", told.append, until_end=True, allow_empty=True)

    batches = [batch async for batch in source.changes({})]

    assert batches == []
    assert [each.finding for each in told if isinstance(each, Remark)] == [None]


async def test_a_source_that_waits_for_files_says_so_until_there_is_one(tmp_path: Path) -> None:
    told: asyncio.Queue[SourceReport] = asyncio.Queue()
    source = a_source(tmp_path, "./*.csv", told.put_nowait, until_end=False, allow_empty=False)
    batches = source.changes({})
    coming = asyncio.ensure_future(anext(batches))
    waiting = await told.get()

    (tmp_path / "a.csv").write_text("id\n1\n2\n")
    await coming
    following = asyncio.ensure_future(anext(batches))
    gone = await told.get()
    following.cancel()
    await asyncio.wait([following])
    await batches.aclose()

    assert isinstance(waiting, Remark) and isinstance(gone, Remark)
    assert waiting.finding is not None and "no file matches" in waiting.finding.problem
    assert gone.finding is None
