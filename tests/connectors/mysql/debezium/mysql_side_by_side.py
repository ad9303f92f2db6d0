"""Lets Debezium and our source live through one history of MySQL or MariaDB, side by side."""

import asyncio
import time
from collections.abc import Mapping
from pathlib import Path

from headwater.connectors.mysql.source import MysqlSource
from headwater.core_log.model.changes import ChangeBatch, Positions
from tests.compat.java_programs import directory_from
from tests.connectors.mysql.conftest import MysqlGuest
from tests.connectors.mysql.debezium import mysql_history
from tests.connectors.mysql.streams import source_context
from tests.debezium import headwater_capture
from tests.debezium.debezium_capture import PIPELINE, WAIT_S_MAX, Engines, capture_with
from tests.debezium.events import Told

MODES: Mapping[str, Mapping[str, str]] = {
    "plain": {},
    "strings": {
        "decimal.handling.mode": "string",
        "time.precision.mode": "isostring",
        "binary.handling.mode": "hex",
    },
    "doubles": {
        "decimal.handling.mode": "double",
        "time.precision.mode": "connect",
        "binary.handling.mode": "base64",
    },
    "micros": {
        "time.precision.mode": "microseconds",
        "binary.handling.mode": "base64-url-safe",
    },
    "nanos": {"time.precision.mode": "nanoseconds"},
}
USER, PASSWORD = "debezium", "secret"
RIGHTS = "SELECT, RELOAD, SHOW DATABASES, LOCK TABLES, REPLICATION SLAVE, REPLICATION CLIENT"
CONNECTORS = {
    False: "io.debezium.connector.mysql.MySqlConnector",
    True: "io.debezium.connector.mariadb.MariaDbConnector",
}
SCRIPTS = {
    False: ("fetch_debezium.sh", "HEADWATER_DEBEZIUM_JARS"),
    True: ("fetch_debezium_mariadb.sh", "HEADWATER_DEBEZIUM_MARIADB_JARS"),
}
STREAMS = (
    "SELECT count(*) FROM information_schema.processlist"
    f" WHERE user = '{USER}' AND command LIKE 'Binlog Dump%'"
)
FIRST_SERVER_ID = 5_400
ENDING_S_MAX = 120


def prepare(guest: MysqlGuest) -> None:
    guest.execute(
        f"CREATE USER IF NOT EXISTS {USER}@'%' IDENTIFIED BY '{PASSWORD}'",
        f"GRANT {RIGHTS} ON *.* TO {USER}@'%'",
    )
    guest.execute(*mysql_history.setup(guest))


async def both(
    guest: MysqlGuest, directory: Path
) -> tuple[dict[str, dict[str, Told]], dict[str, Path]]:
    """What we said in each mode, and the files of what Debezium said."""
    loop = asyncio.get_running_loop()
    source = MysqlSource(guest.settings(heartbeat="1h"), source_context())
    jars = directory_from(*SCRIPTS[guest.server.is_mariadb])
    properties = {
        name: _properties(guest, given, server_id=FIRST_SERVER_ID + number)
        for number, (name, given) in enumerate(MODES.items())
    }
    async with headwater_capture.reading_of(source, _has_read_all) as reading:

        def history() -> None:
            asyncio.run_coroutine_threadsafe(reading.streaming(), loop).result()
            guest.execute(*mysql_history.statements(guest))

        def waits(engines: Engines) -> None:
            deadline = time.monotonic() + WAIT_S_MAX
            while guest.execute(STREAMS)[0][0] < len(properties):
                engines.check_alive(deadline)
                time.sleep(0.1)

        files = await asyncio.to_thread(capture_with, jars, directory, properties, waits, history)
        await asyncio.wait_for(reading.ended, ENDING_S_MAX)
        return _told(reading.batches), files


async def alone(guest: MysqlGuest) -> dict[str, dict[str, Told]]:
    """What we say of the same history without Debezium."""
    source = MysqlSource(guest.settings(heartbeat="1h"), source_context())
    async with headwater_capture.reading_of(source, _has_read_all) as reading:
        await reading.streaming()
        await asyncio.to_thread(guest.execute, *mysql_history.statements(guest))
        await asyncio.wait_for(reading.ended, ENDING_S_MAX)
        return _told(reading.batches)


def _told(batches: list[ChangeBatch]) -> dict[str, dict[str, Told]]:
    return {mode: headwater_capture.told(batches, mode) for mode in MODES}


def _has_read_all(positions: Positions) -> bool:
    parts = [text for name, text in positions.items() if name.startswith("snapshot/")]
    return bool(parts) and all('"done":true' in text for text in parts)


def _properties(guest: MysqlGuest, given: Mapping[str, str], *, server_id: int) -> dict[str, str]:
    return {
        "name": f"beside{server_id}",
        "connector.class": CONNECTORS[guest.server.is_mariadb],
        "offset.storage": "org.apache.kafka.connect.storage.MemoryOffsetBackingStore",
        "schema.history.internal": "io.debezium.relational.history.MemorySchemaHistory",
        "database.hostname": "127.0.0.1",
        "database.port": str(guest.server.port),
        "database.user": USER,
        "database.password": PASSWORD,
        "database.server.id": str(server_id),
        "database.include.list": guest.database,
        "topic.prefix": PIPELINE,
        "include.schema.changes": "false",
        "snapshot.mode": "initial",
        "skipped.operations": "none",
        "poll.interval.ms": "20",
        "custom.metric.tags": f"engine={server_id}",
        **given,
    }
