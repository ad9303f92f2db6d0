"""Compaction of a partition with followers: nobody who leads next tells lower marks, and no deleted
value comes back."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from headwater.core_log.broker import log_cleaner
from headwater.core_log.broker.log_cleaner import LogCleaner
from headwater.core_log.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from headwater.core_log.records.record_codec import PlainRecord, encode_batch
from headwater.core_log.replication.leader import Leader
from headwater.core_log.storage.compaction import CompactionRequest, CompactionResult
from headwater.core_log.storage.compaction_worker import Compaction
from tests.builders import START_MS, values_of
from tests.core_log.broker.replicated import TOPIC, Node, Replicated
from tests.core_log.broker.test_replica_fetcher import until

DAY_MS = 86_400_000
SETTINGS: dict[str, Any] = {
    "cleanup_policy": "compact",
    "segment_bytes": "300",
    "min_cleanable_dirty_ratio": "0.01",
    "delete_retention_ms": "0",
}


@pytest.fixture
async def cluster() -> AsyncIterator[Replicated]:
    cluster = Replicated()
    await cluster.create(**SETTINGS)
    yield cluster
    await cluster.close()


def cleaner_of(node: Node) -> LogCleaner:
    async def compact(request: CompactionRequest) -> CompactionResult:
        return Compaction(request, node.files).run()

    return LogCleaner(node.broker, compact)


async def put(node: Node, key: str, value: str | None) -> None:
    data = None if value is None else value.encode() + b"x" * 50
    batch = encode_batch([PlainRecord(key.encode(), data, timestamp_ms=START_MS)])
    part = PartitionProduceData(index=0, records=memoryview(batch))
    topic = TopicProduceData(name=TOPIC, partition_data=[part])
    answer = await node.ask(ProduceRequest(acks=-1, timeout_ms=9_000, topic_data=[topic]), 12)
    assert answer.responses[0].partition_responses[0].error_code == 0


async def write_history(leader: Node) -> None:
    for number in range(6):
        await put(leader, "often", f"value {number}")
    await put(leader, "gone", "secret")
    await put(leader, "gone", None)
    for number in range(6):
        await put(leader, f"once {number}", "value")


def offsets(node: Node) -> list[int]:
    return [offset for offset, _ in values_of(node.partition.log)]


async def test_compaction_waits_until_all_in_sync_know_how_far_it_goes(
    cluster: Replicated, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_cleaner, "ANNOUNCEMENT_S_MAX", 0.05)
    leader, second, third = cluster.nodes.values()
    await write_history(leader)
    everything = offsets(leader)
    third.links.cut(1)

    await cleaner_of(leader).clean_what_is_due(START_MS)
    waiting = offsets(leader)
    announced = leader.partition.log.cleaned_to
    third.links.mend()
    monkeypatch.setattr(log_cleaner, "ANNOUNCEMENT_S_MAX", 10.0)
    await cleaner_of(leader).clean_what_is_due(START_MS)

    assert waiting == everything and announced > 0
    assert len(offsets(leader)) < len(everything)
    assert {node.partition.log.cleaned_to for node in (second, third)} == {announced}


@pytest.mark.slow
async def test_a_follower_compacts_what_its_leader_has_announced_and_drops_no_delete(
    cluster: Replicated,
) -> None:
    leader, second, _ = cluster.nodes.values()
    await write_history(leader)

    await cleaner_of(second).clean_what_is_due(START_MS)
    before = offsets(second)
    await cleaner_of(leader).clean_what_is_due(START_MS)
    await cleaner_of(leader).clean_what_is_due(START_MS + 1)
    await cleaner_of(second).clean_what_is_due(START_MS + 1)
    for number in range(8):
        await put(leader, "often", f"later value {number}")
    await cleaner_of(leader).clean_what_is_due(START_MS + 2)
    await cleaner_of(second).clean_what_is_due(START_MS + 3)

    assert before == list(range(14)), "nothing was announced yet"
    log = second.partition.log
    assert log.first_dirty_offset > 14 and len(offsets(second)) < 22
    assert [offset for offset, value in values_of(log) if value is None] == [7]
    assert None not in [value for _, value in values_of(leader.partition.log)]


async def announce_to_all_but(node: Node, cluster: Replicated, patch: pytest.MonkeyPatch) -> int:
    """Returns the mark of compaction that its leader has told the others, and cannot tell it."""
    leader, *_ = cluster.nodes.values()
    await write_history(leader)
    with patch.context() as impatient:
        impatient.setattr(log_cleaner, "ANNOUNCEMENT_S_MAX", 0.05)
        node.links.cut(leader.node_id)
        await cleaner_of(leader).clean_what_is_due(START_MS)
    return leader.partition.log.cleaned_to


async def test_a_follower_compacts_no_further_than_all_in_sync_know(
    cluster: Replicated, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever leads next tells no lower marks than a client has read by from that follower."""
    leader, second, third = cluster.nodes.values()
    announced = await announce_to_all_but(third, cluster, monkeypatch)
    known = (second.partition.log.cleaned_to, third.partition.log.cleaned_to)

    await cleaner_of(second).clean_what_is_due(START_MS)
    waiting = offsets(second)
    third.links.mend()
    await until(lambda: second.partition.agreed_to == announced)
    await cleaner_of(second).clean_what_is_due(START_MS)

    assert known == (announced, 0) and announced > 0
    assert waiting == list(range(14))
    assert len(offsets(second)) < 14 and offsets(leader) == list(range(14))
    assert third.partition.log.cleaned_to == announced


async def test_a_follower_asks_again_after_a_restart_how_far_it_may_compact(
    cluster: Replicated,
) -> None:
    leader, second, _ = cluster.nodes.values()
    await write_history(leader)
    await cleaner_of(leader).clean_what_is_due(START_MS)
    announced = leader.partition.log.cleaned_to

    second = await cluster.restart(2)
    await cluster.tell(1, 2, 3)
    at_first = second.partition.agreed_to
    await until(lambda: second.partition.agreed_to == announced)
    await cleaner_of(second).clean_what_is_due(START_MS)

    assert at_first == 0 and announced > 0
    assert len(offsets(second)) < 14


async def test_a_follower_asks_each_leader_how_far_it_may_compact(cluster: Replicated) -> None:
    """After an unclean election a leader may have stored lower marks than the one before."""
    leader, _, third = cluster.nodes.values()
    await write_history(leader)
    await cleaner_of(leader).clean_what_is_due(START_MS)
    announced = leader.partition.log.cleaned_to
    await until(lambda: third.partition.agreed_to == announced)

    third.links.cut(2)
    cluster.elect((2, 3))
    await cluster.tell(1, 2, 3)
    unheard = third.partition.agreed_to
    third.links.mend()
    await until(lambda: third.partition.agreed_to == announced)

    assert unheard == 0


async def test_a_follower_of_an_older_leader_compacts_once_another_one_leads(
    cluster: Replicated, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker of an older version tells no mark that all in sync have stored."""
    leader, _, third = cluster.nodes.values()
    await write_history(leader)
    with monkeypatch.context() as older:
        older.setattr(Leader, "agreed_to", lambda self, cleaned_to: 0)
        await cleaner_of(leader).clean_what_is_due(START_MS)
        announced = leader.partition.log.cleaned_to
        await until(lambda: third.partition.log.cleaned_to == announced)
        await cleaner_of(third).clean_what_is_due(START_MS)
        waiting = offsets(third)
    cluster.elect((2, 3))
    await cluster.tell(1, 2, 3)
    await until(lambda: third.partition.agreed_to == announced)
    await cleaner_of(third).clean_what_is_due(START_MS)

    assert waiting == list(range(14)) and announced > 0
    assert len(offsets(third)) < 14


async def test_a_compaction_of_a_leader_takes_no_effect_once_it_follows(
    cluster: Replicated, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It had told its marks to some, and was replaced before all in sync had stored them."""
    leader, _, third = cluster.nodes.values()
    announced = await announce_to_all_but(third, cluster, monkeypatch)

    async def compact_and_resign(request: CompactionRequest) -> CompactionResult:
        cluster.elect((2, 3), alive=(3,))
        await cluster.tell(1, 2, 3)
        return Compaction(request, leader.files).run()

    await LogCleaner(leader.broker, compact_and_resign).clean_what_is_due(START_MS)

    assert offsets(leader) == list(range(14))
    assert third.partition.leader is not None
    assert third.partition.log.cleaned_to < announced


async def test_a_leader_elected_after_compaction_tells_no_lower_marks(
    cluster: Replicated,
) -> None:
    leader, second, third = cluster.nodes.values()
    await write_history(leader)
    await cleaner_of(leader).clean_what_is_due(START_MS)
    await cleaner_of(leader).clean_what_is_due(START_MS + 1)
    marks = (leader.partition.log.cleaned_to, leader.partition.log.deletes_dropped_to)

    cluster.elect((2, 3))
    await cluster.tell(2, 3)
    await asyncio.sleep(0)

    after = (second.partition.log.cleaned_to, second.partition.log.deletes_dropped_to)
    assert marks > (0, 0) and after >= marks
    await put(second, "later", "value")
    assert third.partition.log.cleaned_to >= marks[0]


@pytest.mark.slow
@pytest.mark.parametrize("ends", ["in sync", "after a day"])
async def test_deletes_stay_while_a_replica_is_copied_so_that_its_copy_does_not_begin_anew(
    cluster: Replicated, ends: str
) -> None:
    leader, _, third = cluster.nodes.values()
    third.links.cut(1)
    cluster.elect((1, 2))
    await cluster.tell(1, 2, 3)
    await write_history(leader)
    cleaner = cleaner_of(leader)

    for later_ms in (0, 1, 2):
        await cleaner.clean_what_is_due(START_MS + later_ms)
        await write_often(leader)
    during = deletes_of(leader)
    if ends == "in sync":
        third.links.mend()
        await until(lambda: 3 in cluster.state.in_sync)
    await cleaner.clean_what_is_due(START_MS + (3 if ends == "in sync" else DAY_MS))

    assert (during, deletes_of(leader)) == ([7], [])
    assert len(offsets(leader)) < 20, "values go all the time"


async def write_often(leader: Node) -> None:
    for number in range(8):
        await put(leader, "often", f"later value {number}")


def deletes_of(node: Node) -> list[int]:
    return [offset for offset, value in values_of(node.partition.log) if value is None]
