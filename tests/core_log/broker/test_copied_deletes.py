"""A replica that is copied while deletes are dropped: no deleted value comes back."""

from collections.abc import AsyncIterator

import pytest

from headwater.core_log.broker import replica_fetcher
from headwater.core_log.records.record_codec import decode_batch
from tests.builders import START_MS
from tests.core_log.broker.replicated import Node, Replicated
from tests.core_log.broker.test_replica_fetcher import until
from tests.core_log.broker.test_replicated_compaction import SETTINGS, cleaner_of, put

THIRD = 3


@pytest.fixture
async def cluster() -> AsyncIterator[Replicated]:
    """The third has nothing, and is away. The others have a value and, much later, its delete."""
    cluster = Replicated()
    await cluster.create(**SETTINGS)
    leader = cluster.nodes[1]
    leave(cluster)
    await cluster.tell(1, 2, 3)
    await put(leader, "gone", "secret")
    for number in range(6):
        await put(leader, f"kept {number}", "value")
    await put(leader, "gone", None)
    for number in range(6, 10):
        await put(leader, f"kept {number}", "value")
    yield cluster
    await cluster.close()


def leave(cluster: Replicated) -> None:
    cluster.nodes[THIRD].links.cut(1, 2)
    cluster.commit(cluster.controller.fence_broker(THIRD))


async def come_back(cluster: Replicated) -> None:
    third = cluster.nodes[THIRD]
    third.links.mend()
    cluster.register(third)
    await cluster.tell(1, 2, 3)


async def lead(cluster: Replicated, node_id: int) -> None:
    cluster.elect((1, 2), alive=(node_id,))
    await cluster.tell(1, 2, 3)


async def drop_deletes(node: Node) -> None:
    """The first time finds the value, the second its delete."""
    for later_ms in (0, 1):
        for number in range(4):
            await put(node, f"more {number}", "value")
        await cleaner_of(node).clean_what_is_due(START_MS + later_ms)


def contents(node: Node) -> dict[bytes, bytes | None]:
    log = node.partition.log
    return {
        record.key: record.value
        for each in log.batches(log.start_offset)
        for record in decode_batch(bytes(each))[1]
        if record.key is not None
    }


async def copy_the_value_alone(cluster: Replicated, patch: pytest.MonkeyPatch) -> None:
    """As of a large partition of which only the beginning has come."""
    third = cluster.nodes[THIRD]
    with patch.context() as small:
        small.setattr(replica_fetcher, "PARTITION_BYTES_MAX", 200)
        await come_back(cluster)
        await until(lambda: third.partition.log.end_offset > 2)
        leave(cluster)
    await cluster.tell(1, 2, 3)
    assert contents(third)[b"gone"] is not None
    assert third.partition.log.end_offset < 7


async def test_a_copy_that_goes_on_from_another_leader_brings_no_deleted_value_back(
    cluster: Replicated, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one has dropped the delete, and the other still has the value."""
    first, _, third = cluster.nodes.values()
    await drop_deletes(first)
    await lead(cluster, 2)

    await copy_the_value_alone(cluster, monkeypatch)
    await lead(cluster, 1)
    await come_back(cluster)
    await until(lambda: THIRD in cluster.state.in_sync)

    assert first.partition.log.deletes_dropped_to > 7
    assert contents(third) == contents(first)


async def test_a_copy_that_goes_on_after_a_break_brings_no_deleted_value_back(
    cluster: Replicated, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its leader had told how far deletes may be dropped, and dropped them meanwhile."""
    first, second, third = cluster.nodes.values()
    await drop_deletes(first)
    await lead(cluster, 2)

    await copy_the_value_alone(cluster, monkeypatch)
    await drop_deletes(second)
    await come_back(cluster)
    await until(lambda: THIRD in cluster.state.in_sync)

    assert b"gone" not in contents(second)
    assert contents(third) == contents(second)
