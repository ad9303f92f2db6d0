"""A database that cannot be reached is told with host, port, reason and cure, never a password."""

from pathlib import Path

import pytest

from headwater.core_log.foundation.errors import SourceRejected, SourceUnavailable
from tests.connectors.sql.shop import Shop
from tests.refused_logins import SECRET, Refused, RefusedLogins


class TestSource(RefusedLogins):
    async def check(self, refused: Refused, directory: Path) -> None:
        source = Shop(refused.address.partition(":")[0], refused.address, directory).source()

        with pytest.raises(SourceUnavailable if refused.passes else SourceRejected) as caught:
            await source.discover()
        (finding,) = await source.examine()

        error = caught.value
        assert refused.place.items() <= error.facts.items()
        assert error.facts["reason"] == refused.reason and "`url` of the source" in error.hint
        assert refused.reason in finding.problem and finding.hint == error.hint
        assert SECRET not in f"{error!r}{error}{finding}"


async def test_a_file_that_is_missing_is_named_and_not_made(tmp_path: Path) -> None:
    source = Shop("sqlite", "sqlite:///no.db", tmp_path).source()

    with pytest.raises(SourceRejected, match="the database file is missing") as caught:
        await source.discover()

    assert caught.value.facts == {"path": str(tmp_path / "no.db")}
    assert "`url` of the source" in caught.value.hint
    assert not (tmp_path / "no.db").exists()
