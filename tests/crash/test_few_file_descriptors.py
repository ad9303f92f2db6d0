"""When descriptors run out, those who are connected are served, and later newcomers again."""

import resource
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from headwater.core_log.protocol.error_codes import ErrorCode
from tests.crash.broker_process import BrokerProcess
from tests.crash.plain_client import Wire
from tests.crash.topic_load import made

SPARE = 20

pytestmark = pytest.mark.crash


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    broker = BrokerProcess(tmp_path / "data", tmp_path / "log", {"internal_partitions": "1"})
    broker.start()
    yield broker
    broker.kill_if_running()
    broker.forget()
    broker.end_children()


def test_a_flood_of_connections_leaves_those_before_it_served(broker: BrokerProcess) -> None:
    with Wire(broker.host_and_port, answer_s_max=10) as early, ExitStack() as flood:
        assert early.create_topic("t", 1, {"segment.bytes": "2000"}) == ErrorCode.NONE
        assert early.produce("t", {0: bytes(made("before"))})[0].error_code == ErrorCode.NONE
        open_count = len(list(Path(f"/proc/{broker.pid}/fd").iterdir()))
        limit = open_count + SPARE
        resource.prlimit(broker.pid, resource.RLIMIT_NOFILE, (limit, limit))

        for _ in range(SPARE * 3):
            flood.enter_context(socket.create_connection(broker.host_and_port))
        codes = [early.produce("t", {0: bytes(made("x" * 500))})[0].error_code for _ in range(40)]
        read = early.fetch("t", {0: 0}, committed=False)[0]

        assert read.batches[0].records[0].value == b"before"
        assert set(codes) <= {ErrorCode.NONE, ErrorCode.KAFKA_STORAGE_ERROR}
        taken = codes.count(ErrorCode.NONE)
        flood.close()
        with Wire(broker.host_and_port, answer_s_max=10) as late:
            assert late.produce("t", {0: bytes(made("after"))})[0].error_code == ErrorCode.NONE
            assert late.offset("t", 0, -1) == taken + 2
