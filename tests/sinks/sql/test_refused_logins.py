"""A database that cannot be reached is told with host, port, reason and cure, never a password."""

from pathlib import Path

import pytest

from headwater.core_log.foundation.errors import HeadwaterError, SinkRejected, SinkUnavailable
from tests.contract.sink_suite import ORDERS
from tests.refused_logins import SECRET, Refused, RefusedLogins
from tests.sinks.sql.databases import SqlBench


class TestSink(RefusedLogins):
    async def check(self, refused: Refused, directory: Path) -> None:
        await _holds(refused, directory)


async def test_a_file_that_cannot_be_opened_is_named_with_its_path(tmp_path: Path) -> None:
    (tmp_path / "text.db").write_text("no database at all, but long enough to be looked at" * 99)
    for path, reason, passes in (
        ("missing/target.db", "the directory is missing", False),
        (".", "the path is a directory", False),
        ("text.db", "the file is not an SQLite database", False),
    ):
        place: dict[str, object] = {"path": str(tmp_path / path)}
        refused = Refused(f"sqlite:///{path}", reason, passes, place)
        await _holds(refused, tmp_path, is_planned="missing" not in path)


async def _holds(refused: Refused, directory: Path, *, is_planned: bool = True) -> None:
    """A file that is missing is no error to a plan, as the first run makes it."""
    sink = SqlBench(refused.address.partition(":")[0], refused.address, directory).sink()
    kind = SinkUnavailable if refused.passes else SinkRejected

    with pytest.raises(kind) as opened:
        await sink.committed_offsets(["a"])
    (finding,) = await sink.examine()
    errors: list[HeadwaterError] = [opened.value]
    if is_planned:
        with pytest.raises(kind) as planned:
            await sink.plan([ORDERS])
        errors.append(planned.value)
        assert refused.reason in finding.problem and finding.hint == planned.value.hint
    await sink.close()

    for error in errors:
        assert refused.place.items() <= error.facts.items()
        assert error.facts["reason"] == refused.reason and "`url` of the sink" in error.hint
    assert SECRET not in f"{errors!r}{[str(each) for each in errors]}{finding}"
