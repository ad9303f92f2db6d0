"""Each change of a MySQL table is of the kinds that `schema_changes` may forbid."""

from contextlib import closing

import pytest

from headwater.connectors.mysql.schema_history.stream_forms import kinds_of_change
from headwater.connectors.mysql.server.catalog import MysqlCatalog
from headwater.connectors.mysql.server.connection import connect
from headwater.core_log.model.table_schema import TableId
from tests.connectors.mysql.conftest import MysqlGuest

TABLE = (
    "CREATE TABLE t (id int PRIMARY KEY, b int NOT NULL, u int unsigned, v varchar(9), c char(9),"
    " d decimal(8,2), e enum('x','y'), f float, at datetime(3), raw varbinary(9))"
)
KINDS = {
    "ADD w int": {"add_column"},
    "DROP v": {"drop_column"},
    "RENAME COLUMN v TO w": {"add_column", "drop_column"},
    "MODIFY b bigint NOT NULL": {"widen_type"},
    "MODIFY b smallint NOT NULL": {"change_type"},
    "MODIFY b bigint unsigned NOT NULL": {"change_type"},
    "MODIFY u bigint": {"widen_type"},
    "MODIFY u int": {"change_type"},
    "MODIFY v varchar(20)": {"widen_type"},
    "MODIFY v text": {"widen_type"},
    "MODIFY v varchar(3)": {"change_type"},
    "MODIFY v varchar(20) CHARACTER SET latin1": {"change_type"},
    "MODIFY c varchar(9)": {"widen_type"},
    "MODIFY v char(9)": {"change_type"},
    "MODIFY d decimal(12,4)": {"widen_type"},
    "MODIFY d decimal(8,4)": {"change_type"},
    "MODIFY e enum('x','y','z')": {"widen_type"},
    "MODIFY e enum('y','x')": {"change_type"},
    "MODIFY at datetime(6)": {"widen_type"},
    "MODIFY at datetime": {"change_type"},
    "MODIFY raw blob": {"widen_type"},
    "MODIFY b text, MODIFY u bigint unsigned": {"change_type", "widen_type"},
    "DROP PRIMARY KEY, ADD PRIMARY KEY (id, b)": {"change_key"},
    "FORCE": {"change_rows"},
}


@pytest.mark.parametrize("action", KINDS)
def test_a_change_is_of_the_kinds_that_may_be_forbidden(
    mysql_guest: MysqlGuest, action: str
) -> None:
    mysql_guest.execute(TABLE)
    catalog = MysqlCatalog(mysql_guest.settings(), mysql_guest.server.is_mariadb)
    name = TableId(mysql_guest.database, "t")

    with closing(connect(mysql_guest.settings())) as connection:
        before = catalog.table(connection, name)
        mysql_guest.execute(f"ALTER TABLE t {action}")
        now = catalog.table(connection, name)

    assert before is not None and now is not None
    assert {*kinds_of_change(before, now)} == KINDS[action]
