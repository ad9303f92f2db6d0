"""A user with the statements of docs/mysql-role.md is enough, and a right that lacks is named."""

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from headwater.connectors.mysql.ddl_rehearsal import rehearse
from headwater.connectors.mysql.doctor import examine
from headwater.connectors.mysql.settings import MysqlSettings
from headwater.connectors.mysql.snapshot.consistent_snapshot import consistent_snapshot
from headwater.core_log.foundation.errors import SourceRejected
from headwater.core_log.model.table_schema import TableId
from tests.connectors.mysql.conftest import MysqlGuest
from tests.connectors.mysql.streams import run_once, source_context

PAGE = Path(__file__).resolve().parents[3] / "docs" / "mysql-role.md"
T = "CREATE TABLE t (id int PRIMARY KEY, v varchar(50))"


def statements_of_the_page(guest: MysqlGuest, user: str) -> list[str]:
    title = "## MariaDB" if guest.server.is_mariadb else "## MySQL"
    block = PAGE.read_text().split(title + "\n")[1].split("```sql\n")[1].split("```")[0]
    named = re.sub(r"\bheadwater\b", user, block).replace("shop.", f"{guest.database}.")
    return [each.replace("choose one", "secret").rstrip(";") for each in named.splitlines() if each]


@pytest.fixture
def role(mysql_guest: MysqlGuest) -> Iterator[MysqlGuest]:
    """The guest as the user of the page."""
    user = mysql_guest.database
    mysql_guest.execute(T, "INSERT INTO t VALUES (1, 'a')")
    mysql_guest.execute(*statements_of_the_page(mysql_guest, user))
    yield replace(mysql_guest, user=f"{user}:secret")
    mysql_guest.execute(f"DROP USER {user}")


async def test_the_rights_of_the_page_are_enough(role: MysqlGuest) -> None:
    assert [each.problem for each in examine(role.settings()) if each.is_fatal] == []
    told = await run_once(role)
    role.execute("INSERT INTO t VALUES (2, 'b')", "CREATE TABLE keyless (n int)")
    role.execute("INSERT INTO keyless VALUES (1), (1)", "ALTER TABLE t ADD COLUMN n int DEFAULT 7")
    await run_once(role, told)
    assert sorted(row["id"] for row in told.fold("t").values()) == [1, 2]
    assert told.letters("keyless").count("r") == 2

    async with consistent_snapshot(role.settings(), source_context(), told.positions) as still:
        rows = still.rows(TableId(role.database, "t"))
        assert sum([len(changes) async for changes in rows]) == 2


def test_the_right_to_try_a_statement_is_enough_for_it(role: MysqlGuest) -> None:
    block = PAGE.read_text().split("### To try a statement\n")[1].split("```sql\n")[1]
    user = role.user.partition(":")[0]
    grant = block.split(";")[0].replace("shop.", f"{role.database}.").replace("headwater", user)
    ddl = ["ALTER TABLE t ADD COLUMN n int DEFAULT 7"]
    with pytest.raises(SourceRejected, match="temporary copy"):
        rehearse(role.settings(), source_context(), ddl)

    role.execute(grant)

    [said] = rehearse(role.settings(), source_context(), ddl)
    assert said.outcome == "read again"


async def test_each_right_that_lacks_is_named_with_its_statement(role: MysqlGuest) -> None:
    monitor = "BINLOG MONITOR" if role.server.is_mariadb else "REPLICATION CLIENT"
    user = role.user.partition(":")[0]
    for right in ("REPLICATION SLAVE", monitor):
        role.execute(f"REVOKE {right} ON *.* FROM {user}")
        hints = [each.hint for each in examine(role.settings()) if each.is_fatal]
        assert any(f"GRANT {right} ON *.* TO" in hint for hint in hints)
        with pytest.raises(SourceRejected):
            await run_once(role)
        role.execute(f"GRANT {right} ON *.* TO {user}")
    role.execute(f"REVOKE SELECT ON {role.database}.* FROM {user}")

    [finding] = [each for each in examine(role.settings()) if each.is_fatal]

    assert "GRANT SELECT" in finding.hint


async def test_the_first_host_that_answers_is_used(role: MysqlGuest) -> None:
    url = f"mysql://{role.user}@127.0.0.1:1,127.0.0.1:{role.server.port}"
    settings = MysqlSettings.model_validate({"url": url, "tables": [f"{role.database}.*"]})

    assert [each.problem for each in examine(settings) if each.is_fatal] == []
    assert (await run_once(role, url=url)).letters("t") == "r"
