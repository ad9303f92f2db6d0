"""Links between three brokers, and between them and the pipeline, go silent and heal: targets end
equal to the source, with every change once, as the audit of its triggers says."""

import logging
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from scripts.embedded_postgres import EmbeddedPostgres, embedded_postgres
from tests.cluster.links import can_have_namespaces
from tests.crash.audit import Audit, pipeline_of, sinks_of
from tests.crash.audited_life import CATCH_UP_S, WORKERS
from tests.crash.capture import Capture
from tests.crash.captured_server import PostgresServer
from tests.crash.linked_log import LinkedLog
from tests.crash.postgres_audit import CHANGES, TABLES, AuditWriter
from tests.crash.source_load import source_load

logger = logging.getLogger(__name__)

LIVES, CUTS = 8, 6
KINDS = (
    [("sqlite", "append"), ("sqlite", "scd2"), ("sqlite", "soft_delete")],
    [("sqlite", "append"), ("delta", "soft_delete")],
)
"""Of two lives in turn: every second one has a lake."""
ROWS_MAX = 400
LOOK_S = 0.05

pytestmark = [
    pytest.mark.long("crash"),
    pytest.mark.skipif(not can_have_namespaces(), reason="network namespaces need root"),
]


@pytest.fixture(scope="module")
def server() -> Iterator[EmbeddedPostgres]:
    with embedded_postgres(settings={"track_commit_timestamp": "on"}) as server:
        yield server


@pytest.mark.parametrize("life", range(LIVES))
def test_a_pipeline_over_cut_links_ends_as_an_audit_says(
    life: int, server: EmbeddedPostgres, tmp_path: Path
) -> None:
    random, sinks = Random(life), sinks_of(KINDS[life % 2], seed=life)
    log = LinkedLog(tmp_path)
    capture = Capture(
        PostgresServer(server),
        f"linked_{life}",
        tmp_path,
        workers=WORKERS[life % 2],
        pipeline=pipeline_of(sinks),
        tables=TABLES,
        captured="orders",
        cluster=log,
    )
    topic, group = f"{capture.name}.public.orders", f"headwater.{capture.name}"
    load = source_load(capture.server, capture.name, AuditWriter(seed=life))
    try:
        capture.broker.start()
        capture.runner.start()
        audit = Audit(capture, sinks, CHANGES)
        load.start()
        for _ in range(CUTS):
            load.wait_for(random.randrange(ROWS_MAX))
            logger.info("%s", log.cut(random, topic=topic, group=group))
            load.wait_for(random.randrange(ROWS_MAX))
            wait_for_more(capture, audit)
            log.heal()
        load.wait_for(random.randrange(ROWS_MAX))
        load.stop()
        capture.finish(CATCH_UP_S)

        assert audit.differences() == {}
        capture.command("verify", capture.name, "-f", capture.file, patience_s=CATCH_UP_S)
    finally:
        load.stop()
        capture.close()


def wait_for_more(capture: Capture, audit: Audit) -> None:
    """The pipeline goes on while links are cut."""
    before = audit.delivered()
    while audit.delivered() == before:
        assert capture.runner.poll() is None, capture.runner.last_words()
        time.sleep(LOOK_S)
