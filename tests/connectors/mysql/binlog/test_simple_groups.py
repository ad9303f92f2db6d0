"""Transactions that are read together are those that are read one event after the other."""

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pytest

from headwater.connectors.mysql.binlog.decoder import BinlogDecoder
from headwater.connectors.mysql.binlog.simple_groups import SimpleGroups, find_simple_groups
from headwater.connectors.mysql.binlog.transport import BinlogTransport, DumpStart
from headwater.connectors.mysql.events.group_reader import BinlogGroupReader
from headwater.connectors.mysql.events.row_buffer import MysqlOrigin
from headwater.connectors.mysql.position import BinlogPosition
from headwater.connectors.mysql.server.catalog import MysqlCatalog
from headwater.connectors.mysql.server.connection import connect
from headwater.connectors.mysql.server.server_identity import identify
from headwater.core_log.foundation.errors import DecodeError
from headwater.core_log.model.changes import TableChanges
from tests.connectors.mysql.conftest import MysqlGuest

Reading = Callable[[Sequence[bytes], bool], tuple[list[tuple[Any, ...]], BinlogPosition, int]]
"""Reads events of one history, also those that are found together; with their number."""


def reading_of(guest: MysqlGuest, history: Callable[[], None]) -> tuple[list[bytes], Reading]:
    """The events of a history, and what reads them."""
    settings = guest.settings()
    connection = connect(settings)
    server = identify(connection)
    catalog = MysqlCatalog(settings, server.is_mariadb)
    tables = {each.table: each for each in catalog.tables(connection)}
    charsets = catalog.charsets(connection)
    gtids, place = server.executed_gtids(connection), server.log_end(connection)
    assert gtids is not None, "these servers have GTIDs"
    history()
    transport = BinlogTransport(connection)
    transport.start(server, DumpStart(place, gtids, waits=False), server_id=0, heartbeat_s=1.0)
    events = list[bytes]()
    while burst := transport.wait_for_events(1 << 20):
        events += burst
    connection.close()

    def read(
        given: Sequence[bytes], is_together: bool
    ) -> tuple[list[tuple[Any, ...]], BinlogPosition, int]:
        reader = BinlogGroupReader(
            MysqlOrigin("shop", server.name), BinlogPosition(gtids.copy(), place), tables,
            catalog.captures, charsets, server.is_mariadb,
        )  # fmt: skip
        decoder = BinlogDecoder(server.is_mariadb, has_checksum=True, wants=reader.wants)
        found, together = list[TableChanges](), 0
        for each in find_simple_groups(given, decoder) if is_together else given:
            if isinstance(each, SimpleGroups) and reader.takes(each):
                together += len(each.rows)
                reader.feed_groups(each)
                continue
            for event in each.events if isinstance(each, SimpleGroups) else [each]:
                for decoded in decoder.decode(event):
                    reader.feed(decoded)
                    reader.add_decided()
        found += reader.take()
        return told(found), reader.position, together

    return events, read


def told(changes: Sequence[TableChanges]) -> list[tuple[Any, ...]]:
    """Every change with all that is said of it, in the order of the log."""
    found = []
    for each in changes:
        parts = [each.commits, each.indexes, each.before, *each.source.values()]
        columns = [part.to_pylist() if isinstance(part, pa.Array) else None for part in parts]
        for at, (operation, row) in enumerate(
            zip(each.operations.to_pylist(), each.rows.to_pylist(), strict=True)
        ):
            cells = [part if column is None else column[at]
                     for part, column in zip(parts, columns, strict=True)]  # fmt: skip
            found.append((str(each.schema.table), operation, str(row), str(cells)))
    return sorted(found, key=lambda change: change[3])


def small_transactions(guest: MysqlGuest) -> Callable[[], None]:
    def write() -> None:
        for at in range(40):
            guest.execute(f"INSERT INTO t VALUES ({at}, 'a')", f"INSERT INTO u VALUES ({at}, 1)")
        guest.execute(*(f"UPDATE t SET v = 'b' WHERE id = {at}" for at in range(30)))
        guest.execute(
            "INSERT INTO t VALUES (100, 'x'), (101, NULL)", "INSERT INTO other VALUES (1)"
        )
        guest.execute("BEGIN", "INSERT INTO t VALUES (102, '')", "DELETE FROM u", "COMMIT")
        guest.execute(*(f"UPDATE t SET id = id + 1000 WHERE id = {at}" for at in range(5)))
        guest.execute(*(f"DELETE FROM t WHERE id = {at}" for at in range(5, 40)))
        guest.execute("XA START 'x'", "INSERT INTO t VALUES (103, 'xa')", "XA END 'x'",
                      "XA PREPARE 'x'", "XA COMMIT 'x'")  # fmt: skip
        guest.execute("FLUSH BINARY LOGS", *(f"INSERT INTO u VALUES ({at}, 2)" for at in range(20)))

    guest.execute(
        "CREATE TABLE t (id int PRIMARY KEY, v varchar(50))",
        "CREATE TABLE u (id int PRIMARY KEY, n int)",
        "CREATE TABLE other (id int PRIMARY KEY)",
    )
    return write


def test_transactions_that_are_read_together_are_the_same(mysql_guest: MysqlGuest) -> None:
    events, read = reading_of(mysql_guest, small_transactions(mysql_guest))

    one_by_one, position, _ = read(events, False)
    at_once, same_position, together = read(events, True)

    assert at_once == one_by_one and len(one_by_one) > 150
    assert same_position == position
    assert together > 100


def test_a_flipped_bit_is_an_error_in_them_as_well(mysql_guest: MysqlGuest) -> None:
    def write() -> None:
        mysql_guest.execute(*(f"INSERT INTO t VALUES ({at}, 'a')" for at in range(40)))

    mysql_guest.execute("CREATE TABLE t (id int PRIMARY KEY, v varchar(50))")
    events, read = reading_of(mysql_guest, write)
    broken = bytearray(events[-7])
    broken[-6] ^= 1
    events[-7] = bytes(broken)

    with pytest.raises(DecodeError, match="checksum"):
        read(events, True)
