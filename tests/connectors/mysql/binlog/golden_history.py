"""Records the golden binary logs of tests/golden/mysql from real servers, and reads them."""

# python -m tests.connectors.mysql.binlog.golden_history writes them again.

from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa

from headwater.connectors.mysql.binlog.decoder import BinlogDecoder, Decoded
from headwater.connectors.mysql.binlog.json_document import TEXT_DOCUMENT
from headwater.connectors.mysql.binlog.rows import RowChange, RowsEvent, read_rows
from headwater.connectors.mysql.binlog.table_map import TableMap
from headwater.connectors.mysql.kernels.kernels import MysqlKernels, PlainMysqlKernels
from scripts.embedded_mysql import EmbeddedMysql, Kind, embedded_mysql

GOLDEN = Path(__file__).parents[3] / "golden" / "mysql"
PLAIN = PlainMysqlKernels()
KINDS: tuple[Kind, ...] = ("mysql-9", "mysql-8.0", "mariadb", "mariadb-11.8")
TABLES = (
    "CREATE DATABASE g CHARACTER SET utf8mb4",
    "CREATE TABLE g.t (id bigint unsigned PRIMARY KEY, y year, n int, u smallint unsigned,"
    " d decimal(12,3), s varchar(300), b blob, e enum('x','y'), m set('p','q'), f float,"
    " at datetime(6), j json)",
    "CREATE TABLE g.parent (id int PRIMARY KEY)",
    "CREATE TABLE g.child (id int PRIMARY KEY, parent int, g int AS (id * 2) STORED,"
    " FOREIGN KEY (parent) REFERENCES g.parent (id) ON DELETE CASCADE)",
)
ROWS = (
    "INSERT INTO g.t VALUES (1, 2026, -1, 65535, -1.5, 'one', x'00ff', 'y', 'p,q', 1.5,"
    ' \'2026-11-24 01:02:03.000004\', \'{"a": [1, 2], "b": {"c": "long enough"}}\')',
    "INSERT INTO g.t (id, s) VALUES (2, NULL), (18446744073709551615, REPEAT('x', 300))",
    "UPDATE g.t SET n = 5, s = 'other' WHERE id = 1",
    "DELETE FROM g.t WHERE id = 2",
    "BEGIN",
    "INSERT INTO g.parent VALUES (1), (2)",
    "SAVEPOINT s",
    "INSERT INTO g.child (id, parent) VALUES (10, 1)",
    "UPDATE g.child SET parent = 2",
    "COMMIT",
    "DELETE FROM g.parent WHERE id = 2",
    "SET binlog_row_image = MINIMAL",
    "UPDATE g.t SET n = 6 WHERE id = 1",
    "SET binlog_row_image = NOBLOB",
    "UPDATE g.t SET n = 7 WHERE id = 1",
    "SET binlog_row_image = FULL",
)
XA = (
    "XA START 'kept'",
    "INSERT INTO g.t (id) VALUES (20)",
    "XA END 'kept'",
    "XA PREPARE 'kept'",
    "XA COMMIT 'kept'",
    "XA START 'undone'",
    "INSERT INTO g.t (id) VALUES (21)",
    "XA END 'undone'",
    "XA PREPARE 'undone'",
    "XA ROLLBACK 'undone'",
)
MYSQL = (
    "SET binlog_row_value_options = 'PARTIAL_JSON'",
    "UPDATE g.t SET j = JSON_SET(j, '$.a[0]', 9, '$.b.c', 'shorter') WHERE id = 1",
    "UPDATE g.t SET j = JSON_REMOVE(j, '$.b.c') WHERE id = 1",
    "SET binlog_row_value_options = ''",
)
PAYLOAD = (
    "SET binlog_transaction_compression = ON",
    "INSERT INTO g.t (id, s) VALUES (30, REPEAT('z', 200)), (31, REPEAT('z', 200))",
    "SET binlog_transaction_compression = OFF",
)
TAGGED = (
    "SET gtid_next = 'AUTOMATIC:tag_1'",
    "INSERT INTO g.t (id) VALUES (40)",
    "SET gtid_next = 'AUTOMATIC'",
)
COMPRESSED = (
    "CREATE TABLE g.c (id int PRIMARY KEY, s varchar(500) COMPRESSED, x text COMPRESSED)",
    "INSERT INTO g.c VALUES (1, REPEAT('v', 400), REPEAT('t', 4000)), (2, '', 'short')",
    "SET GLOBAL log_bin_compress = ON",
    "SET GLOBAL log_bin_compress_min_len = 10",
    "INSERT INTO g.c VALUES (3, REPEAT('w', 400), '')",
    "UPDATE g.c SET s = 'w' WHERE id = 3",
    "DELETE FROM g.c WHERE id = 3",
    "SET GLOBAL log_bin_compress = OFF",
)
DDL = (
    "ALTER TABLE g.t ADD COLUMN more int DEFAULT 3",
    "INSERT INTO g.t (id) VALUES (50)",
    "TRUNCATE TABLE g.t",
    "CREATE TABLE g._t_gho LIKE g.t",
    "RENAME TABLE g.t TO g._t_del, g._t_gho TO g.t",
    "DROP TABLE g._t_del",
)


def statements_of(server: EmbeddedMysql) -> list[str]:
    found = [*TABLES, *ROWS, *XA]
    if server.is_mariadb:
        found += COMPRESSED
    else:
        found += MYSQL
    if server.kind == "mysql-9":
        found += [*PAYLOAD, *TAGGED]
    return [*found, *DDL, "FLUSH BINARY LOGS"]


def record(kind: Kind) -> None:
    with embedded_mysql(kind, settings={"default-time-zone": "+00:00"}) as server:
        server.execute("FLUSH BINARY LOGS")
        server.execute(*statements_of(server))
        file = sorted(server.data.glob("bin.??????"))[-2]
        (GOLDEN / f"{kind}.binlog").write_bytes(file.read_bytes())
    events = list(told_of(GOLDEN / f"{kind}.binlog"))
    (GOLDEN / f"{kind}.txt").write_text("\n".join(map(line_of, events)) + "\n")


def told_of(file: Path) -> Iterator[Decoded]:
    decoder = BinlogDecoder("mariadb" in file.name)
    for event in events_in(file.read_bytes()):
        yield from decoder.decode(event)


def events_in(data: bytes) -> Iterator[bytes]:
    pos = 4
    while pos < len(data):
        size = int.from_bytes(data[pos + 9 : pos + 13], "little")
        yield data[pos : pos + size]
        pos += size


def line_of(decoded: Decoded, kernels: MysqlKernels = PLAIN) -> str:
    event: Any = decoded.event
    if isinstance(event, RowsEvent):
        change = event.layout.change
        [count], before, after = columns_of(event, kernels)
        sides = [
            None if change is absent else values
            for values, absent in ((before, RowChange.INSERT), (after, RowChange.DELETE))
        ]
        unapplied = " unapplied" if event.has_unapplied_json else ""
        return f"{event.table.name} {change.value} {count}{unapplied} {sides}"
    if isinstance(event, TableMap):
        return f"{event.database}.{event.name} {event.key} {list(event.columns)}"
    return str(event)


def columns_of(
    event: RowsEvent, kernels: MysqlKernels = PLAIN
) -> tuple[list[int], dict[int, list[Any]], dict[int, list[Any]]]:
    """The rows of an event as values of Python, as a reader of single values would give them."""
    found = read_rows(event.layout, [event.rows], kernels, range(len(event.table.columns)))
    before, after = (
        {place: list(map(plain, values_of(column))) for place, column in sorted(side.items())}
        for side in (found.before, found.after)
    )
    return found.counts.tolist(), before, after


def values_of(column: pa.Array) -> list[Any]:
    is_date = pa.types.is_date32(column.type)
    values: list[Any] = (column.view(pa.int32()) if is_date else column).to_pylist()
    return values


def plain(value: Any) -> Any:
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, bytes) and value[:1] == TEXT_DOCUMENT:
        return value[1:].decode()
    return value


if __name__ == "__main__":
    for kind in KINDS:
        record(kind)
