"""A database that cannot be reached is told with host, port, reason and cure, never a password."""

from pathlib import Path

import pytest

from headwater.core_log.foundation.errors import SourceRejected, SourceUnavailable
from tests.connectors.sql.shop import Shop
from tests.refused_logins import (
    SECRET,
    Refused,
    closed,
    unknown_database,
    unknown_host,
    wrong_password,
)


@pytest.mark.parametrize("kind", ["postgresql", "mysql"])
async def test_a_server_that_is_not_there_is_named_with_host_port_and_reason(
    kind: str, tmp_path: Path
) -> None:
    for refused in (closed(kind), unknown_host(kind)):
        await _holds(refused, tmp_path)


@pytest.mark.parametrize("kind", ["postgres", "mariadb"])
async def test_a_server_that_lets_nobody_in_is_named_with_the_reason(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    server: str = request.getfixturevalue(kind)

    await _holds(unknown_database(server), tmp_path)
    with wrong_password(server) as refused:
        await _holds(refused, tmp_path)


async def test_a_file_that_is_missing_is_named_and_not_made(tmp_path: Path) -> None:
    source = Shop("sqlite", "sqlite:///no.db", tmp_path).source()

    with pytest.raises(SourceUnavailable, match="the database file is missing") as caught:
        await source.discover()

    assert caught.value.facts == {"path": str(tmp_path / "no.db")}
    assert "`url` of the source" in caught.value.hint
    assert not (tmp_path / "no.db").exists()


async def _holds(refused: Refused, directory: Path) -> None:
    source = Shop(refused.address.partition(":")[0], refused.address, directory).source()

    with pytest.raises(SourceUnavailable if refused.passes else SourceRejected) as caught:
        await source.discover()
    (finding,) = await source.examine()

    error = caught.value
    assert refused.place.items() <= error.facts.items()
    assert error.facts["reason"] == refused.reason and "`url` of the source" in error.hint
    assert refused.reason in finding.problem and finding.hint == error.hint
    assert SECRET not in f"{error!r}{error}{finding}"
