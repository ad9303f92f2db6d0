"""SHOW statements say of a temporary copy what the catalogue says of its table."""

from contextlib import closing
from dataclasses import replace

from headwater.connectors.mysql.ddl_rehearsal import copy_of, shown_columns
from headwater.connectors.mysql.server.catalog import MysqlCatalog
from headwater.connectors.mysql.server.connection import connect
from headwater.connectors.mysql.types.column_definition import ColumnDefinition
from headwater.core_log.model.table_schema import TableId
from tests.connectors.mysql.conftest import GUEST, MysqlGuest

TYPES = [
    "tinyint", "smallint unsigned", "mediumint", "int(9) zerofill", "bigint unsigned",
    "decimal(10,3) unsigned", "decimal(5)", "float", "float(7,3)", "double", "bit(9)", "year",
    "date", "datetime(3)", "timestamp(6) NULL", "time(2)", "char(7) CHARACTER SET utf16",
    "varchar(30) CHARACTER SET latin1 COLLATE latin1_bin", "varchar(30)", "text", "tinytext",
    "mediumtext CHARACTER SET ascii", "longtext", "binary(5)", "varbinary(40)", "blob", "longblob",
    "enum('a', 'it''s', 'b\\\\s', 'ö,)') CHARACTER SET latin1", "set('x', 'y') NOT NULL", "json",
    "point", "geometry", "int AS (a0 + 1) VIRTUAL", "int AS (a0 + 2) STORED",
]  # fmt: skip
MARIADB = ["uuid", "inet6", "varchar(99) COMPRESSED", "int INVISIBLE"]
SIZED = {"char", "varchar", "binary", "varbinary", "text", "tinytext", "mediumtext", "longtext",
         "blob", "longblob"}  # fmt: skip
PRECISE = {"decimal", "bit"}


def measured(column: ColumnDefinition) -> ColumnDefinition:
    """The column without the sizes that nothing asks for."""
    return replace(
        column,
        octets=column.octets if column.data_type in SIZED else 0,
        precision=column.precision if column.data_type in PRECISE else 0,
        scale=column.scale if column.data_type in PRECISE else 0,
    )


def test_a_copy_has_the_columns_of_its_table(mysql_guest: MysqlGuest) -> None:
    more = MARIADB if mysql_guest.server.is_mariadb else []
    columns = ", ".join(f"a{at} {kind}" for at, kind in enumerate([*TYPES, *more]))
    mysql_guest.execute(
        f"GRANT CREATE TEMPORARY TABLES ON {mysql_guest.database}.* TO {GUEST}@'%'",
        f"CREATE TABLE t ({columns}, PRIMARY KEY (a0), UNIQUE (a1, a2), KEY (a3)) COMMENT 'a\nb'",
    )
    catalog = MysqlCatalog(mysql_guest.settings(), mysql_guest.server.is_mariadb)

    with closing(connect(mysql_guest.settings())) as connection:
        table = catalog.table(connection, TableId(mysql_guest.database, "t"))
        assert table is not None and not table.problem
        copy = copy_of(connection, catalog, table)
        found = shown_columns(connection, copy.name)

    expected = [measured(replace(each, is_key=False)) for each in table.definitions]
    assert [measured(each) for each in found] == expected
