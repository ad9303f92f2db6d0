"""`headwater cluster quotas` lists, sets and removes what clients may use."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.pipelines.terminal import exit_codes
from tests.pipelines.conftest import Headwater
from tests.pipelines.run_process import end, start_broker


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    data = tmp_path_factory.mktemp("quotas") / "data"
    broker = start_broker(data)
    yield data
    end(broker, signal.SIGTERM)


def test_quotas_are_set_listed_and_removed(headwater: Headwater, data: Path) -> None:
    def ask(*words: str) -> list[list[str]]:
        done = headwater("cluster", "quotas", *words, "--data", data)
        assert done.code == exit_codes.OK, done.remarks
        return [line.split() for line in done.data.splitlines()]

    ask("set", "--user", "alice", "producer_byte_rate=1000000", "request_percentage=12.5")
    ask("set", "--user", "alice", "--default-client-id", "consumer_byte_rate=5")
    ask("set", "--address", "10.0.0.1", "connection_creation_rate=3")
    listed = ask("list")
    ask("remove", "--user", "alice", "producer_byte_rate", "request_percentage")
    left = ask("list")

    assert listed[1:] == [
        ["-", "-", "10.0.0.1", "connection_creation_rate", "3"],
        ["alice", "-", "-", "producer_byte_rate", "1e+06"],
        ["alice", "-", "-", "request_percentage", "12.5"],
        ["alice", "(default)", "-", "consumer_byte_rate", "5"],
    ]
    assert len(left) == len(listed) - 2


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["producer_byte_rate=1"], "has no user, client id or address"),
        (["--user", "a", "--default-user", "producer_byte_rate=1"], "two quotas"),
        (["--user", "a", "no_such_rate=1"], "the limit does not exist"),
        (["--user", "a", "producer_byte_rate=many"], "not a number"),
        (["--user", "a", "producer_byte_rate=0"], "must be greater than 0"),
        (["--user", "a", "--address", "::1", "producer_byte_rate=1"], "combination"),
        (["--address", "a.host", "connection_creation_rate=1"], "not a valid IP"),
    ],
)
def test_a_quota_that_cannot_be_is_told(
    headwater: Headwater, data: Path, words: list[str], why: str
) -> None:
    done = headwater("cluster", "quotas", "set", *words, "--data", data)

    assert done.code == exit_codes.INVALID, done.remarks
    assert why in done.remarks
