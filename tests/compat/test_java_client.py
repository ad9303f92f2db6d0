"""The Java client 4.3 finds every promise kept: records, groups, transactions, administration."""

import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.compat.java_programs import CLIENT, JAVA, class_path, client_jars, compile_sources
from tests.compat.stored_batches import stored_batches
from tests.crash.broker_process import BrokerProcess

pytestmark = pytest.mark.compat

PROMISES = [
    "codec_none",
    "codec_gzip",
    "codec_snappy",
    "codec_lz4",
    "codec_zstd",
    "keyed_order",
    "many_batches_in_flight",
    "nulls_and_empties",
    "acks_0_and_1",
    "oversize_record",
    "oversize_batch_is_split",
    "auto_created_topic",
    "illegal_topic",
    "log_append_time",
    "timestamp_out_of_range",
    "topic_created_anew",
    "seek_and_pause",
    "ends_of_the_log",
    "offsets_for_times",
    "reset_policies",
    "a_record_larger_than_a_fetch",
    "a_long_poll_ends_with_the_record",
    "partitions_and_topics",
    "members_share_partitions",
    "cooperative_members_keep_what_stays",
    "static_member_comes_back",
    "second_holder_of_an_instance_id",
    "commit_and_go_on",
    "auto_commit",
    "commit_of_a_past_generation",
    "subscription_by_pattern",
    "two_groups_read_everything",
    "committed_and_aborted",
    "open_transaction_holds_readers",
    "atomic_over_topics",
    "offsets_in_a_transaction",
    "offsets_of_a_stranger",
    "second_owner_fences_the_first",
    "timed_out_transaction_is_aborted",
    "empty_transaction",
    "transactions_of_version_2",
    "topics_come_and_go",
    "configs",
    "cluster",
    "features",
    "groups_described_and_deleted",
    "group_offsets",
    "delete_records",
    "list_offsets",
    "log_dirs",
    "more_partitions",
    "fenced_by_the_administrator",
    "killed_while_producing",
    "killed_while_in_transactions",
]
"""All that tests/compat/java keeps, in its order; a JVM takes no longer for all than for some."""
KILL = "kill the broker and start it again"
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
SETTINGS = {"housekeeping_interval_ms": "200", "internal_partitions": "4"}


@dataclass(frozen=True)
class Run:
    """One JVM's run over every promise, and the files that the broker kept of it."""

    outcome: dict[str, str]
    data: Path
    kills: int


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    directory = tmp_path_factory.mktemp("java-client")
    path = class_path(client_jars(), CLIENT)
    compile_sources(Path(__file__).parent / "java", directory / "classes", path)
    path = f"{directory / 'classes'}{os.pathsep}{path}"
    broker = BrokerProcess(directory / "data", directory / "broker.log", SETTINGS)
    broker.start()
    outcome: dict[str, str] = {}
    kills = 0
    for line in promise_by_promise(path, broker.address):
        if line == KILL:
            kills += 1
            broker.kill()
            broker.forget()
            broker.start()
        else:
            word, name, *why = line.split(" ", 2)
            outcome[name] = " ".join([word, *why])
    broker.stop()
    return Run(outcome, broker.data, kills)


def promise_by_promise(path: str, address: str) -> Iterator[str]:
    command = [*JAVA, "-cp", path, "Promises", address]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as program:
        assert program.stdout is not None, "its lines are read"
        try:
            for line in program.stdout:
                yield line.rstrip("\n")
        finally:
            program.kill()


@pytest.mark.parametrize("promise", PROMISES)
def test_the_java_client_finds_every_promise_kept(run: Run, promise: str) -> None:
    assert run.outcome.get(promise) == "ok"


def test_every_promise_is_listed_and_the_broker_was_killed(run: Run) -> None:
    assert set(run.outcome) == set(PROMISES)
    assert run.kills == 2


def test_the_client_takes_transaction_version_2_as_offered(run: Run) -> None:
    """Version 2 is the one in which every transaction ends with a new epoch of its producer."""
    batches = list(stored_batches(run.data, "epochs"))
    records = [batch for batch in batches if not batch.is_control]

    assert len(records) == len(batches) - len(records) == 3
    assert len({batch.producer_epoch for batch in records}) == 3
    assert [batch.base_sequence for batch in records] == [0, 0, 0]


@pytest.mark.parametrize(("number", "codec"), tuple(enumerate(CODECS)))
def test_batches_lie_on_disk_as_the_client_compressed_them(
    run: Run, number: int, codec: str
) -> None:
    codecs = {batch.compression for batch in stored_batches(run.data, f"codec-{codec}")}

    assert codecs == {number}
