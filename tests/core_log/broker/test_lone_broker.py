"""A broker that is left of a cluster becomes the only one by its files, with all that it has, and
wherever the command is interrupted it can be given again."""

from collections.abc import AsyncIterator
from contextlib import suppress
from itertools import count
from random import Random

import pytest

from headwater.core_log.broker.lone_broker import LoneBrokerPlan, lone_broker
from headwater.core_log.foundation.clock import SystemClock
from headwater.core_log.foundation.errors import ConfigError, DirectoryInUse, HeadwaterError
from headwater.core_log.model.log import TopicPartition
from headwater.core_log.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from headwater.core_log.storage.store import Store
from tests.builders import DATA
from tests.core_log.broker.cluster_in_memory import Cluster
from tests.core_log.broker.test_cluster import three, vote
from tests.core_log.broker.test_moved_partitions import TOPIC, ask, partition, produce
from tests.fakes import FaultyFiles, MemoryFiles

pytestmark = pytest.mark.slow

AT = TopicPartition(TOPIC, 0)


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    cluster = Cluster()
    yield cluster
    await cluster.close()


async def left_over(cluster: Cluster, *values: str) -> MemoryFiles:
    """The files of broker 1 after all three were killed, and the disks of the others are lost."""
    await three(cluster)
    await make_topic(cluster, 3)
    await cluster.until(lambda: len(partition(cluster).in_sync) == 3)
    await produce(cluster, *values)
    for node_id in (1, 2, 3):
        cluster.kill(node_id)
    files = cluster.files.pop(1)
    assert isinstance(files, MemoryFiles)
    return files


def plan_of(files: MemoryFiles | FaultyFiles, *, carries_out: bool = False) -> LoneBrokerPlan:
    with lone_broker(DATA, files=files, clock=SystemClock(), random=Random()) as broker:
        if carries_out:
            broker.carry_out()
        return broker.plan


async def begun_again(files: MemoryFiles | FaultyFiles, node_id: int = 1) -> Cluster:
    cluster = Cluster()
    cluster.files[node_id] = files
    await cluster.start(node_id)
    return cluster


async def make_topic(cluster: Cluster, replicas: int) -> None:
    wanted = CreatableTopic(name=TOPIC, num_partitions=1, replication_factor=replicas)
    await ask(cluster, 1, CreateTopicsRequest(topics=[wanted]))
    await cluster.until(lambda: all(each.image.topic(TOPIC) for each in cluster.brokers.values()))


async def test_a_lone_broker_has_every_acknowledged_record_and_takes_more(
    cluster: Cluster,
) -> None:
    files = await left_over(cluster, "a", "b")

    plan = plan_of(files, carries_out=True)
    again = await begun_again(files)

    assert plan.others == [2, 3] and AT in plan.in_sync and not plan.behind and not plan.empty
    broker = again.brokers[1]
    assert vote(broker) == [1] and list(broker.image.brokers) == [1]
    assert (partition(again).replicas, partition(again).in_sync) == ((1,), (1,))
    assert await produce(again, "c") == 2
    await again.start(2)
    await again.start(3)
    await again.until(lambda: vote(broker) == [1, 2, 3])
    await again.close()


async def test_others_that_come_back_with_their_disks_stay_apart(cluster: Cluster) -> None:
    """They know the cluster by its former id, and are a majority of it."""
    files = await left_over(cluster, "a")
    plan_of(files, carries_out=True)
    former = cluster.cluster_id
    cluster.files[1], cluster.cluster_id = files, None
    lone = await cluster.start(1)

    cluster.cluster_id = former
    cluster.boot(2)
    cluster.boot(3)
    await cluster.until(lambda: any(cluster.brokers[each].is_controller for each in (2, 3)))

    assert lone.cluster_id != former
    assert list(lone.image.brokers) == [1] and lone.is_controller
    assert await produce(cluster, "b") == 1


async def test_the_plan_names_partitions_of_which_the_broker_has_no_replica(
    cluster: Cluster,
) -> None:
    await three(cluster)
    await make_topic(cluster, 2)
    elsewhere = next(each for each in (1, 2, 3) if each not in partition(cluster).replicas)
    for node_id in (1, 2, 3):
        cluster.kill(node_id)
    files = cluster.files.pop(elsewhere)

    assert plan_of(files).empty == [AT]
    assert plan_of(files) == plan_of(files, carries_out=True), "looking changes nothing"
    again = await begun_again(files, elsewhere)
    assert await produce(again, "new") == 0
    await again.close()


async def test_the_plan_names_partitions_in_which_the_broker_was_not_in_sync(
    cluster: Cluster,
) -> None:
    await three(cluster)
    await make_topic(cluster, 3)
    before = partition(cluster)
    away = next(each for each in (2, 3) if each != before.leader)
    cluster.kill(away)
    await cluster.until(lambda: away not in partition(cluster).in_sync)
    again = cluster.boot(away)
    await cluster.until(lambda: away not in (again.image.partition(TOPIC, 0) or before).in_sync)
    cluster.kill(away)

    plan = plan_of(cluster.files.pop(away))
    assert AT in plan.behind and AT not in plan.in_sync


async def test_offsets_beyond_what_the_broker_has_are_told_by_their_epoch(
    cluster: Cluster,
) -> None:
    """Once more was written, a target that is ahead would take other records for its own."""
    files = await left_over(cluster, "a", "b")
    plan_of(files, carries_out=True)
    again = await begun_again(files)
    await produce(again, "c", "d", "e")

    partition_here = again.brokers[1].replicas.replica(TOPIC, 0)
    assert partition_here is not None
    epochs = partition_here.log.epochs
    former = epochs.epoch_at(0)
    assert epochs.end_offset_for(former) == (former, 2)
    assert epochs.end_offset_for(former + 1) == (former, 2), "an epoch of the others' alone"
    await again.close()


async def test_a_damaged_vote_is_replaced(cluster: Cluster) -> None:
    files = await left_over(cluster, "a", "b")
    files.replace(DATA / "log" / "__cluster_metadata-0" / "quorum-state", b"{torn")

    plan_of(files, carries_out=True)
    again = await begun_again(files)

    assert await produce(again, "c") == 2
    await again.close()


async def test_a_command_that_is_interrupted_anywhere_can_be_given_again(
    cluster: Cluster,
) -> None:
    left = await left_over(cluster, "a", "b")
    for number in count(1):
        kept = left.copy()
        files = FaultyFiles(kept)
        files.fail_at, files.error = number, OSError("the process has ended")
        with suppress(OSError, HeadwaterError):
            plan_of(files, carries_out=True)
        is_over = files.change_count < number
        inner = kept.after_power_cut(Random(number))
        with suppress(ConfigError):  # it was done before the end
            plan_of(inner, carries_out=True)
        again = await begun_again(inner)
        assert await produce(again, "c") == 2, f"interrupted at change {number}"
        await again.close()
        if is_over:
            assert number > 5, "there are steps between which it can end"
            return


async def test_a_broker_that_needs_nobody_and_one_that_runs_are_refused(cluster: Cluster) -> None:
    await cluster.start(1)
    with pytest.raises(DirectoryInUse):
        plan_of(cluster.files[1])

    await cluster.stop(1)
    with pytest.raises(ConfigError, match="only voter"):
        plan_of(cluster.files[1], carries_out=True)
    with pytest.raises(ConfigError, match="no log"):
        plan_of(MemoryFiles())
    joined, clock = MemoryFiles(), SystemClock()
    Store.open(DATA, files=joined, clock=clock, random=Random(), node_id=2, cluster_id="c").close()
    with pytest.raises(ConfigError, match="knows nothing"):
        plan_of(joined.after_kill(), carries_out=True)
