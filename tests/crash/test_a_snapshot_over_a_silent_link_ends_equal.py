"""The link to the source goes silent in the middle of a snapshot, and heals: its readers notice,
and the target ends equal."""

import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import cast

import pytest
import sqlalchemy as sa
import yaml

from headwater.core_log.foundation import tcp_keepalive
from scripts.embedded_mysql import Kind, embedded_mysql
from scripts.embedded_postgres import embedded_postgres
from tests.cluster.links import can_have_namespaces
from tests.crash.captured_server import CapturedServer, MysqlServer, PostgresServer
from tests.crash.command_process import PATIENCE_S, CommandProcess
from tests.silent_link import enter_namespace, silent_link

DOUBLINGS, ROW_BYTES = 16, 600
BYTES_UNTIL_SILENT = 8 << 20
OPTIONS = {
    "keepalives_idle": "1",
    "keepalives_interval": "1",
    "keepalives_count": "2",
    "tcp_user_timeout": "2000",
}

RETRIED = "tries again"
LOOK_S = 0.05

pytestmark = [
    pytest.mark.crash,
    pytest.mark.skipif(not can_have_namespaces(), reason="network namespaces need root"),
]


@pytest.fixture(params=["postgres", "mysql-9"])
def server(request: pytest.FixtureRequest) -> Iterator[CapturedServer]:
    if request.param == "postgres":
        with embedded_postgres() as postgres:
            yield PostgresServer(postgres)
    else:
        with embedded_mysql(cast("Kind", request.param)) as mysql:
            yield MysqlServer(mysql)


def begin(namespace: str) -> None:
    """In the process of the run: its kernel notices within seconds what it else does in a minute.
    A source of PostgreSQL is told by its address."""
    enter_namespace(namespace)
    tcp_keepalive.IDLE_S = tcp_keepalive.INTERVAL_S = 1
    tcp_keepalive.COUNT, tcp_keepalive.UNACKNOWLEDGED_MS_MAX = 2, 2_000


def test_a_snapshot_over_a_silent_link_is_read_again(
    server: CapturedServer, tmp_path: Path
) -> None:
    target, file, output = (tmp_path / name for name in ("target.db", "pipeline.yaml", "run.log"))
    server.create("silent", ["CREATE TABLE items (id int PRIMARY KEY, a text)"])
    server.execute("silent", f"INSERT INTO items VALUES (0, repeat('x', {ROW_BYTES}))")
    for doubling in range(DOUBLINGS):
        server.execute("silent", f"INSERT INTO items SELECT id + {2**doubling}, a FROM items")
    url = sa.make_url(server.address_of("silent"))
    assert url.port is not None, "the server listens at a port"
    with silent_link(url.port) as link:
        near = url.set(host=link.host)
        if isinstance(server, PostgresServer):
            near = near.update_query_dict(OPTIONS)
        source = {
            **server.source_of("silent"),
            "url": near.render_as_string(hide_password=False),
            "tables": f"{server.namespace_of('silent')}.items",
            "snapshot": {"parallel": 2, "chunk_rows": 20_000},
            "connect_timeout": "2s",
        }
        sink = {"type": "sql", "url": f"sqlite:///{target}"}
        pipeline = {
            "pipeline": "shop",
            "workers": 0,
            "source": source,
            "sink": sink,
            "errors": {"retry": {"for": "10m", "backoff": "50ms..400ms"}},
        }
        file.write_text(yaml.safe_dump(pipeline))
        runner = CommandProcess(
            ["run", file, "--once"],
            directory=tmp_path,
            output=output,
            before=partial(begin, link.namespace),
        )
        link.silence_after(BYTES_UNTIL_SILENT)
        runner.start()
        try:
            while not link.is_silent.wait(LOOK_S):
                assert runner.poll() is None, runner.last_words()
            server.execute("silent", "UPDATE items SET a = 'changed' WHERE id < 3")
            while RETRIED not in output.read_text():
                assert runner.poll() is None, runner.last_words()
                time.sleep(LOOK_S)
            link.heal()
            code = runner.wait(PATIENCE_S)
        finally:
            runner.end()

    question = "SELECT id, a FROM items ORDER BY id"
    with closing(sqlite3.connect(target)) as database:
        assert database.execute(question).fetchall() == server.execute("silent", question)
    assert code == 0, runner.last_words()
