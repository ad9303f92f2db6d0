"""Planted differences between the files of replicas are found."""

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from headwater.core_log.model.log import TopicPartition
from headwater.core_log.records.record_codec import PlainRecord, encode_batch
from tests.cluster.stored_logs import differences

AT = TopicPartition("orders", 0)
Batches = dict[int, list[bytes]]


def batch(base_offset: int, epoch: int, value: bytes) -> bytes:
    content = bytearray(encode_batch([PlainRecord(None, value)]))
    content[:8] = base_offset.to_bytes(8, "big")
    content[12:16] = epoch.to_bytes(4, "big")
    return bytes(content)


def equal_logs() -> Batches:
    log = [batch(0, 1, b"a"), batch(1, 1, b"b"), batch(2, 3, b"c")]
    return {node: list(log) for node in (1, 2, 3)}


def problems_of(batches: Batches, directory: Path) -> Sequence[str]:
    for node, content in batches.items():
        partition = directory / str(node) / "orders-0"
        partition.mkdir(parents=True)
        (partition / f"{0:020}.log").write_bytes(b"".join(content))
    return differences({node: directory / str(node) for node in batches}, {AT: 3})


def test_equal_files_have_no_difference(tmp_path: Path) -> None:
    logs = equal_logs()
    del logs[2][0]  # removed by retention, earlier than elsewhere

    assert not problems_of(logs, tmp_path)


def test_replicas_may_differ_in_what_was_never_committed(tmp_path: Path) -> None:
    logs = equal_logs()
    logs[2].append(batch(3, 3, b"late"))

    assert not problems_of(logs, tmp_path)


def change_a_record(logs: Batches) -> None:
    logs[2][1] = batch(1, 1, b"x")


def change_an_epoch(logs: Batches) -> None:
    logs[3][2] = batch(2, 2, b"c")


def lose_the_end(logs: Batches) -> None:
    logs[1].pop()


def go_back_in_epochs(logs: Batches) -> None:
    for log in logs.values():
        log[2] = batch(2, 0, b"c")


def go_back_in_offsets(logs: Batches) -> None:
    logs[2].append(batch(1, 3, b"d"))


@pytest.mark.parametrize(
    ("plant", "problem"),
    [
        (change_a_record, "replicas differ: orders-0 at 1 "),
        (change_an_epoch, "replicas differ: orders-0 at 2 "),
        (lose_the_end, "replicas differ: orders-0 has 2 and 3 batches"),
        (go_back_in_epochs, "epoch goes back: orders-0 on node 1 from 1 to 0"),
        (go_back_in_offsets, "offset goes back: orders-0 on node 2 from 2 to 1"),
    ],
)
def test_a_planted_difference_is_found(
    plant: Callable[[Batches], None], problem: str, tmp_path: Path
) -> None:
    logs = equal_logs()
    plant(logs)

    found = problems_of(logs, tmp_path)

    assert any(each.startswith(problem) for each in found), found
