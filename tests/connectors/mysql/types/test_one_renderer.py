"""The binary log and a SELECT give the same values of every type."""

import pytest

from headwater.connectors.mysql.binlog.decoder import BinlogDecoder
from headwater.connectors.mysql.binlog.rows import RowsEvent, read_rows
from headwater.connectors.mysql.kernels.kernels import kernels_of
from headwater.connectors.mysql.server.catalog import MysqlCatalog, identifier
from headwater.connectors.mysql.server.connection import connect
from headwater.connectors.mysql.snapshot.chunk_reader import read_blocks
from headwater.connectors.mysql.types.column_definition import is_logged_as
from headwater.core_log.foundation.speed import Speed
from headwater.core_log.model.table_schema import TableId
from tests.connectors.mysql.conftest import MysqlGuest

SPATIAL = [
    "ST_GeomFromText('POINT(1 2)')",
    "ST_GeomFromText('POINT(-1.5 1e300)')",
]
TYPES: dict[str, list[str]] = {
    "tinyint": ["-128", "127", "0"],
    "tinyint(1)": ["2", "-1"],
    "tinyint unsigned": ["255", "0"],
    "smallint": ["-32768", "32767"],
    "smallint unsigned zerofill": ["65535", "1"],
    "mediumint": ["-8388608", "8388607", "-1"],
    "mediumint unsigned": ["16777215"],
    "int": ["-2147483648", "2147483647"],
    "int unsigned": ["4294967295"],
    "bigint": ["-9223372036854775808", "9223372036854775807"],
    "bigint unsigned": ["18446744073709551615", "0"],
    "decimal(65,30)": [f"-{'1234567890' * 3}12345.{'1234567890' * 3}", "0", "1"],
    "decimal(10,0)": ["-9999999999", "9999999999", "0"],
    "decimal(9,9)": ["-0.000000001", "0.123456789"],
    "decimal(5,2) unsigned": ["999.99", "0.01"],
    "decimal(20,3)": ["-0.001", "12345678901234567.891"],
    "float": ["1.1", "-3.4e38", "1e-38", "0", "16777216", "123456.789"],
    "float(7,3)": ["1234.567", "-0.001"],
    "double": ["1.1", "-1.7976931348623157e308", "2.2250738585072014e-308", "0.1", "1e15"],
    "double(10,3)": ["1234.567"],
    "bit(1)": ["b'1'", "b'0'"],
    "bit(11)": ["b'10110011101'", "b'0'"],
    "bit(64)": ["b'1111111111111111111111111111111111111111111111111111111111111111'", "1"],
    "date": ["'2026-11-24'", "'1000-01-01'", "'9999-12-31'", "'0000-00-00'", "'2026-00-00'",
             "'2026-02-31'"],
    "datetime": ["'2026-11-24 12:34:56'", "'0000-00-00'", "'1969-12-31 23:59:59'"],
    "datetime(3)": ["'2026-11-24 12:34:56.789'", "'9999-12-31 23:59:59.999'"],
    "datetime(6)": ["'2026-11-24 12:34:56.100000'", "'1000-01-01 00:00:00.000001'"],
    "datetime(1)": ["'2026-11-24 12:34:56.7'"],
    "datetime(5)": ["'2026-11-24 12:34:56.78912'"],
    "timestamp": ["'2026-11-24 12:34:56'", "'1970-01-01 09:00:01'", "'0000-00-00'"],
    "timestamp(6)": ["'2026-11-24 12:34:56.123456'", "'2038-01-19 12:14:07.999999'"],
    "timestamp(3)": ["'2026-11-24 12:34:56.1'"],
    "time": ["'-838:59:59'", "'838:59:59'", "'00:00:00'", "'-00:00:01'"],
    "time(6)": ["'-10:11:12.000001'", "'-00:00:00.5'", "'838:59:58.999999'"],
    "time(1)": ["'-10:11:12.5'", "'-00:00:00.1'"],
    "time(3)": ["'-10:11:12.345'"],
    "time(4)": ["'-100:11:12.3456'"],
    "year": ["2026", "0", "1901", "2155"],
    "char(10)": ["'a  '", "''", "'żółw 🐢'"],
    "char(200) character set utf8mb4": ["'x'", "repeat('ż', 200)"],
    "varchar(20)": ["'a  '", "'\U0001f422'"],
    "varchar(5000)": ["repeat('x', 4000)"],
    "varchar(20) character set latin1": ["'héllo €'", "x'8182'"],
    "varchar(20) character set gbk": ["'汉字'"],
    "varchar(20) character set sjis": ["'漢字ｱ'"],
    "varchar(20) character set cp1251": ["'Привет'"],
    "varchar(20) character set utf16": ["'a\U0001f422'"],
    "varchar(20) character set ucs2": ["'aż'"],
    "varchar(20) character set utf32": ["'a\U0001f422'"],
    "varchar(20) character set utf8mb3": ["'ż'"],
    "varchar(20) collate utf8mb4_bin": ["'b'"],
    "text": ["'text'", "repeat('long ', 10000)"],
    "tinytext": ["'t'"],
    "mediumtext character set latin1": ["'é'"],
    "longtext": ["'l'"],
    "binary(4)": ["x'6100'", "x'00000000'", "x'61200000'", "''"],
    "varbinary(8)": ["x'6100'", "x'00ff'"],
    "blob": ["x'00ff10'", "''"],
    "longblob": ["x'00'"],
    "enum('x','y,z','it''s','')": ["'x'", "'y,z'", "'it''s'", "''"],
    "enum('é','b') character set latin1": ["'é'"],
    "set('p','q','r s')": ["'p,r s'", "''", "'q'"],
    "point": SPATIAL,
    "geometry": ["ST_GeomFromText('LINESTRING(0 0,1 1)')", *SPATIAL],
    "polygon": ["ST_GeomFromText('POLYGON((0 0,1 0,1 1,0 0))')"],
    "json": [
        """'{"b": [1, null, true], "a": "x"}'""", "'[]'", "'{}'", "'null'", "'1.0'", "'-0.0'",
        "'\"\\\\u0001 \\\\\" \\\\\\\\ ż\"'", "'1e300'", "'1e15'", "'1e-15'", "'1e-16'", "'0.1'",
        "'123456789012345680'", "'18446744073709551615'", "'-9223372036854775808'",
        "'[1.5, [2, {\"k\": {}}]]'",
    ],
}  # fmt: skip
MYSQL: dict[str, list[str]] = {
    "json": [
        "JSON_ARRAY(CAST(1.50 AS DECIMAL(10,3)), CAST('2026-01-02' AS DATE))",
        "JSON_ARRAY(CAST('2026-01-02 03:04:05.678' AS DATETIME(6)))",
        "JSON_ARRAY(CAST('-10:11:12.5' AS TIME(6)))",
        "JSON_ARRAY(CAST(x'00ff' AS BINARY), b'101')",
        "JSON_ARRAY(CAST(repeat('x', 100) AS BINARY))",
        "JSON_OBJECT('bigger', repeat('x', 70000), 'n', 70000, 'm', -70000, 'b', 1 << 40)",
        "JSON_ARRAY(ST_GeomFromText('POINT(1 2)'))",
        "CAST(CAST(65 AS UNSIGNED) AS JSON)",
    ],
}
MARIADB: dict[str, list[str]] = {
    "uuid": ["'123e4567-e89b-12d3-a456-426655440000'", "'00000000-0000-0000-0000-000000000000'"],
    "inet6": ["'::1'", "'2001:db8::ff00:42:8329'", "'::ffff:1.2.3.4'", "'::'", "'1:0:0:2::'"],
    "inet4": ["'192.168.0.1'", "'0.0.0.0'"],
    "varchar(200) compressed": ["repeat('x', 150)", "''", "'short'"],
    "text compressed": ["repeat('y', 5000)", "'z'"],
}
NEWEST = {"mysql-9": {"vector(3)": ["STRING_TO_VECTOR('[1,2.5,-3e10]')"]}}


def declared(guest: MysqlGuest) -> list[tuple[str, list[str]]]:
    own = MARIADB if guest.server.is_mariadb else MYSQL
    newest = NEWEST.get(guest.server.kind, {})
    return [*TYPES.items(), *own.items(), *newest.items()]


@pytest.mark.parametrize("speed", ["python", "fast"])
def test_every_value_of_every_type_is_the_same_from_the_log_and_from_a_select(
    mysql_guest: MysqlGuest, speed: Speed
) -> None:
    kernels = kernels_of(speed)
    tables = declared(mysql_guest)
    lenient = "SET sql_mode = 'ALLOW_INVALID_DATES'"
    creates = [
        f"CREATE TABLE t{at} (id int primary key, v {kind} null)"
        for at, (kind, _) in enumerate(tables)
    ]
    inserts = [
        f"INSERT INTO t{at} VALUES ({place}, {literal})"
        for at, (_, literals) in enumerate(tables)
        for place, literal in enumerate([*literals, "NULL"])
    ]
    mysql_guest.execute(lenient, "SET NAMES utf8mb4", *creates, "FLUSH BINARY LOGS", *inserts)
    connection = connect(mysql_guest.settings())
    catalog = MysqlCatalog(mysql_guest.settings(), mysql_guest.server.is_mariadb)
    charsets = catalog.charsets(connection)
    streamed = logged_rows(mysql_guest)

    for at, (kind, literals) in enumerate(tables):
        table = catalog.table(connection, TableId(mysql_guest.database, f"t{at}"))
        assert table is not None and not table.problem, (kind, table)
        events = streamed[f"t{at}"]
        wire = events[0].table
        assert is_logged_as(table.definitions, table.primary_key, wire, charsets), (
            kind,
            wire,
            table,
        )
        asked = ", ".join(plan.asked.format(identifier(plan.column.name)) for plan in table.plans)
        query = f"SELECT {asked} FROM `{mysql_guest.database}`.t{at} ORDER BY id"
        blocks = connection.blocks(query, kernels)
        selected = read_blocks(table, blocks, kernels)[0].column(1)
        [layout] = {event.layout for event in events}
        rows = read_rows(layout, [event.rows for event in events], kernels, {1})
        logged = table.plans[1].log_column(rows.after[1])

        assert logged.to_pylist() == selected.to_pylist(), kind
        assert len(logged) == len(literals) + 1 and not logged[len(literals)].is_valid
        selected.validate(full=True)
    connection.close()


def logged_rows(guest: MysqlGuest) -> dict[str, list[RowsEvent]]:
    decoder = BinlogDecoder(guest.server.is_mariadb)
    found: dict[str, list[RowsEvent]] = {}
    file = sorted(guest.server.data.glob("bin.??????"))[-1]
    data, pos = file.read_bytes(), 4
    while pos < len(data):
        size = int.from_bytes(data[pos + 9 : pos + 13], "little")
        for decoded in decoder.decode(data[pos : pos + size]):
            if (
                isinstance(decoded.event, RowsEvent)
                and decoded.event.table.database == guest.database
            ):
                found.setdefault(decoded.event.table.name, []).append(decoded.event)
        pos += size
    return found
