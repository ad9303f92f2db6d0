"""Looks into the binary log for changes of captured tables between two positions."""

from collections.abc import Mapping

from headwater.connectors.mysql.binlog.decoder import BinlogDecoder
from headwater.connectors.mysql.binlog.transport import BinlogTransport, DumpStart
from headwater.connectors.mysql.events.group_reader import BinlogGroupReader
from headwater.connectors.mysql.events.row_buffer import MysqlOrigin
from headwater.connectors.mysql.position import BinlogPosition
from headwater.connectors.mysql.server.catalog import MysqlCatalog, MysqlTable
from headwater.connectors.mysql.server.connection import MysqlConnection
from headwater.connectors.mysql.server.server_identity import FilePosition, MysqlServer
from headwater.core_log.model.table_schema import TableId

BURST_BYTES = 2 << 20
HEARTBEAT_S = 1.0
ANONYMOUS_SERVER_ID = 0
"""A reader with it ends no other one."""


def has_changes_between(
    connection: MysqlConnection,
    server: MysqlServer,
    catalog: MysqlCatalog,
    tables: Mapping[TableId, MysqlTable],
    after: BinlogPosition,
    before: FilePosition,
) -> bool:
    """Uses the connection up."""
    reader = BinlogGroupReader(
        MysqlOrigin("", server.name),
        after.copy(),
        tables,
        catalog.captures,
        catalog.charsets(connection),
        server.is_mariadb,
        folds_names=server.folds_names,
    )
    decoder = BinlogDecoder(
        server.is_mariadb, has_checksum=server.checksum.upper() == "CRC32", wants=reader.wants
    )
    transport = BinlogTransport(connection)
    gtids = after.gtids if after.gtids or not server.is_mariadb else None
    start = DumpStart(after.place, gtids, waits=False)
    transport.start(server, start, server_id=ANONYMOUS_SERVER_ID, heartbeat_s=HEARTBEAT_S)
    while events := transport.burst(BURST_BYTES):
        for event in events:
            for decoded in decoder.decode(event):
                if not reader.is_open and reader.position.place.order >= before.order:
                    return False
                reader.feed(decoded)
                has_decided = not reader.add_decided()
                if has_decided or reader.has_rows or reader.suspects or reader.prepared:
                    return True
    return False
