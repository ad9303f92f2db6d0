"""A primary that is gone, and a standby in its place: the pipeline goes on with the copy of its
slot, and its target ends equal to what the new primary has."""

from pathlib import Path

import psycopg
import pytest

from scripts.embedded_postgres import EmbeddedPostgres, embedded_postgres, temporary_directory
from tests.crash.capture import Capture
from tests.crash.captured_server import PostgresServer
from tests.crash.postgres_load import ShopWriter
from tests.crash.source_load import source_load

STANDBY = {
    "synchronized_standby_slots": "",
    "hot_standby_feedback": "on",
    "primary_slot_name": "copy",
    "sync_replication_slots": "on",
}
ROWS = 3_000


@pytest.mark.long("crash")
def test_a_capture_goes_on_at_the_promoted_standby(tmp_path: Path) -> None:
    with embedded_postgres(version=18) as primary, temporary_directory("copy") as directory:
        with psycopg.connect(primary.address, autocommit=True) as connection:
            connection.execute("SELECT pg_create_physical_replication_slot('copy', true)")
        standby = primary.copy(directory, settings=STANDBY, database="postgres")
        standby.start()
        demand_copies_first(primary)
        hosts = f"127.0.0.1:{primary.port},127.0.0.1:{standby.port}"
        address = f"postgresql://headwater@{hosts}/failover?target_session_attrs=primary"
        capture = Capture(PostgresServer(primary), "failover", tmp_path, address=address)
        loads = [source_load(capture.server, capture.name, ShopWriter(seed=1))]
        capture.broker.start()
        capture.runner.start()
        try:
            loads[0].start()
            loads[0].wait_for(ROWS)
            until_copied(primary, standby)
            loads[0].wait_for(ROWS)
            primary.kill()
            standby.promote()
            loads[0].stop()

            capture.server = PostgresServer(standby)
            loads.append(source_load(capture.server, capture.name, ShopWriter(seed=2)))
            loads[1].start()
            loads[1].wait_for(ROWS)
            loads[1].stop()
            capture.finish()

            assert capture.differences() == {}
            assert capture.repeated() == {}
        finally:
            for load in loads:
                load.stop()
            capture.close()
            standby.stop("immediate")


def demand_copies_first(primary: EmbeddedPostgres) -> None:
    """From now on nothing is streamed to us that the standby does not have."""
    with psycopg.connect(primary.address, autocommit=True) as connection:
        connection.execute("ALTER SYSTEM SET synchronized_standby_slots = 'copy'")
        connection.execute("SELECT pg_reload_conf()")


def until_copied(primary: EmbeddedPostgres, standby: EmbeddedPostgres) -> None:
    """A copy becomes one for good when the slot has moved beyond where the copy was begun, which
    it does with every record of what was running; a server by itself writes those now and then."""
    question = "SELECT FROM pg_replication_slots WHERE synced AND NOT temporary"
    with (
        psycopg.connect(primary.address, autocommit=True) as writer,
        psycopg.connect(standby.address, autocommit=True) as connection,
    ):
        while not connection.execute(question).rowcount:
            writer.execute("SELECT pg_log_standby_snapshot()")
