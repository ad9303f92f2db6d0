"""Moves at a rate: throttled while they last, told as they go, and not lost when nobody follows."""

import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest

from headwater.core_log.client import KafkaLog, KafkaSettings
from headwater.core_log.client.quota_admin import BrokerRate, ThrottledTopic
from headwater.core_log.foundation.errors import LogRejected
from headwater.core_log.foundation.settings import TopicSettings
from headwater.core_log.model.log import TopicPartition
from headwater.core_log.records.batch_header import Batch
from headwater.core_log.replication.decisions import ConfigChange, ConfigOperation
from headwater.core_log.replication.metadata_records import PartitionRecord
from headwater.pipelines.watching import moved_replicas
from headwater.pipelines.watching.cluster_state import read_state
from headwater.pipelines.watching.moved_replicas import (
    CopyPace,
    CopyProgress,
    MoveReport,
    Replicas,
    carry_out,
    merge,
    progress_of,
    remove_all,
    throttle,
    throttles_shown,
)
from tests.builders import batch
from tests.core_log.broker.cluster_in_memory import WAIT_S, Cluster

AT, OTHER = TopicPartition("t", 0), TopicPartition("t", 1)
SLOW, FAST = 1, 1 << 40
RATES = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
LEADERS, FOLLOWERS = (
    "leader.replication.throttled.replicas",
    "follower.replication.throttled.replicas",
)


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    cluster = Cluster()
    for node_id in (1, 2, 3):
        await cluster.start(node_id)
    await cluster.until(lambda: all(len(e.quorum.voters) == 3 for e in cluster.brokers.values()))
    yield cluster
    await cluster.close()


@pytest.fixture
async def log(cluster: Cluster) -> AsyncIterator[KafkaLog]:
    """A topic of two partitions, each with one replica, on brokers 1 and 2, and some records."""
    log = KafkaLog(KafkaSettings(bootstrap=["node-1:9092"]), dial=cluster.dial)
    await log.topics.create(TopicSettings(name="t", partitions=2, replication_factor=1))
    await carry_out(log, {AT: (1,), OTHER: (2,)}, pace=CopyPace(2), note=print)
    for at in (AT, OTHER):
        await write(log, at)
    yield log
    await log.close()


async def write(log: KafkaLog, at: TopicPartition, *, records: int = 50) -> None:
    for number in range(records):
        await log.append(at, Batch(batch(f"{number:01000}"), 1))


def partition(cluster: Cluster, at: TopicPartition) -> PartitionRecord:
    found = cluster.brokers[1].image.partition(*at)
    assert found is not None
    return found


def lists(cluster: Cluster) -> tuple[str, str]:
    config = cluster.brokers[1].image.topic_config("t")
    return config.get(LEADERS, ""), config.get(FOLLOWERS, "")


def rates(cluster: Cluster) -> dict[int, set[str | None]]:
    image = cluster.brokers[1].image
    return {node: {image.broker_setting(node, each) for each in RATES} for node in (1, 2, 3)}


class Following:
    """A command that moves, and what it says."""

    def __init__(
        self, log: KafkaLog, changes: dict[TopicPartition, Replicas], pace: CopyPace
    ) -> None:
        self.said: list[str] = []
        work = carry_out(log, changes, pace=pace, note=self.said.append)
        self.task = asyncio.ensure_future(work)

    async def interrupt(self) -> None:
        self.task.cancel()
        await asyncio.wait([self.task])


@pytest.mark.slow
async def test_a_move_is_throttled_while_it_lasts_and_nothing_else_is(
    cluster: Cluster, log: KafkaLog
) -> None:
    command = Following(log, {AT: (1, 3), OTHER: (2,)}, CopyPace(10, SLOW))

    await cluster.until(lambda: any("copied to" in each for each in command.said))

    assert lists(cluster) == ("0:1", "0:3")
    assert rates(cluster) == {1: {str(SLOW)}, 2: {None}, 3: {str(SLOW)}}
    assert partition(cluster, AT).adding == (3,)
    await log.throttles.set_rate([1, 3], FAST)
    await asyncio.wait_for(command.task, WAIT_S)
    assert partition(cluster, AT).assignment == ((1, 3), (), ())
    assert lists(cluster) == ("", "")
    assert rates(cluster) == {1: {None}, 2: {None}, 3: {None}}


@pytest.mark.slow
async def test_an_interrupted_move_goes_on_at_its_rate_and_the_same_command_ends_it(
    cluster: Cluster, log: KafkaLog
) -> None:
    changes: dict[TopicPartition, Replicas] = {AT: (3,), OTHER: (1,)}
    first = Following(log, changes, CopyPace(1, SLOW))
    await cluster.until(lambda: any("copied to" in each for each in first.said))

    await first.interrupt()

    assert first.said[-1] == (
        "moves that have begun go on; give the command again to begin the other 1. The rate "
        "stays until that command is done, or until headwater cluster unthrottle"
    )
    assert [*await log.brokers.moves()] == [AT]
    assert lists(cluster) == ("0:1,1:2", "0:3,1:1")
    await carry_out(log, changes, pace=CopyPace(10, FAST), note=print)
    assert [partition(cluster, each).replicas for each in (AT, OTHER)] == [(3,), (1,)]
    assert (lists(cluster), rates(cluster)) == (("", ""), {1: {None}, 2: {None}, 3: {None}})


@pytest.mark.slow
async def test_an_interrupted_move_needs_no_command_once_its_rate_is_removed(
    cluster: Cluster, log: KafkaLog
) -> None:
    command = Following(log, {AT: (3,)}, CopyPace(10, SLOW))
    await cluster.until(lambda: any("copied to" in each for each in command.said))
    await command.interrupt()
    assert "give the command again to follow them" in command.said[-1]

    removed = await remove_all(log)

    assert removed == (["t"], {1: SLOW, 3: SLOW})
    await cluster.until(lambda: partition(cluster, AT).assignment == ((3,), (), ()))
    assert await remove_all(log) == ([], {})


@pytest.mark.slow
async def test_a_broker_that_was_killed_while_it_copied_goes_on_and_knows_its_rate(
    cluster: Cluster, log: KafkaLog
) -> None:
    command = Following(log, {AT: (3,)}, CopyPace(10, SLOW))
    await cluster.until(lambda: any("copied to" in each for each in command.said))
    await command.interrupt()
    cluster.kill(3)
    await cluster.until(lambda: not cluster.brokers[1].image.is_alive(3))

    again = await cluster.start(3)
    quota = again.replicas.quotas.follower

    assert quota.limit == SLOW and quota.is_throttled(*AT) and not quota.is_throttled(*OTHER)
    assert partition(cluster, AT).adding == (3,)
    await remove_all(log)
    await cluster.until(lambda: partition(cluster, AT).assignment == ((3,), (), ()))


async def test_writers_go_on_while_a_move_stands_still(cluster: Cluster, log: KafkaLog) -> None:
    command = Following(log, {AT: (1, 2, 3)}, CopyPace(10, SLOW))
    await cluster.until(lambda: any("copied to" in each for each in command.said))

    await write(log, AT)

    assert (await log.bounds([AT]))[AT].end == 100
    assert set(partition(cluster, AT).in_sync) == {1}
    await command.interrupt()


@pytest.mark.slow
async def test_rates_stay_while_others_move(cluster: Cluster, log: KafkaLog) -> None:
    other = Following(log, {OTHER: (3,)}, CopyPace(10, SLOW))
    await cluster.until(lambda: any("copied to" in each for each in other.said))
    said = list[str]()

    await carry_out(log, {AT: (1,)}, pace=CopyPace(10, SLOW), note=said.append)

    assert said[-1] == (
        "brokers keep their rate while other partitions move; headwater cluster unthrottle ends it"
    )
    assert lists(cluster) == ("1:2", "1:3")
    assert rates(cluster)[3] == {str(SLOW)}
    await other.interrupt()


async def test_a_move_that_is_refused_leaves_no_throttle(cluster: Cluster, log: KafkaLog) -> None:
    with pytest.raises(LogRejected):
        await carry_out(log, {AT: (3, 9)}, pace=CopyPace(1, SLOW), note=print)

    assert (lists(cluster), rates(cluster)) == (("", ""), {1: {None}, 2: {None}, 3: {None}})


@pytest.mark.slow
async def test_a_throttle_that_somebody_else_has_set_stays(cluster: Cluster, log: KafkaLog) -> None:
    await log.throttles.set_topics({"t": ThrottledTopic("1:2", "*")})

    await throttle(log, {AT: (3,)}, SLOW)
    during = lists(cluster)
    await carry_out(log, {AT: (3,)}, pace=CopyPace(1, FAST), note=print)

    assert (during, lists(cluster)) == (("1:2,0:1", "*"), ("1:2", "*"))


async def test_the_state_of_a_cluster_shows_moves_and_rates(
    cluster: Cluster, log: KafkaLog
) -> None:
    command = Following(log, {AT: (3,)}, CopyPace(10, SLOW))
    await cluster.until(lambda: any("copied to" in each for each in command.said))
    await command.interrupt()
    [progress] = (await progress_of(log, await log.brokers.moves())).values()

    state = await read_state(log, await log.topics.all())

    assert 0 < progress.left <= progress.wanted
    [move], [rate] = state.moves, state.throttles
    assert move.startswith("t-0 is being moved to 3: ") and move.endswith(" KiB left")
    assert rate == ("t is copied at 1 B per second on 1 3; headwater cluster unthrottle ends that")
    assert not state.problems


async def test_a_default_rate_of_all_brokers_is_shown_and_left_alone(
    cluster: Cluster, log: KafkaLog
) -> None:
    controller = cluster.controller
    assert controller is not None
    for_all = ConfigChange(RATES[0], ConfigOperation.SET, "2048")
    await controller.metadata.change(
        lambda: controller.controller.broker_configs.alter(None, [for_all])
    )
    await cluster.until(lambda: all(each == {"2048", None} for each in rates(cluster).values()))
    await log.throttles.set_rate([2], 1024)

    shown = await log.throttles.rates()
    removed = await remove_all(log)

    assert shown == {
        1: BrokerRate(2048, is_own=False),
        2: BrokerRate(1024, is_own=True),
        3: BrokerRate(2048, is_own=False),
    }
    assert removed == ([], {2: 1024})
    assert all(each == {"2048", None} for each in rates(cluster).values())


@pytest.mark.parametrize(
    ("given", "moved", "after"),
    [
        ("", {0: (1, 2)}, "0:1,0:2"),
        ("*", {0: (1,)}, "*"),
        ("3:1, 0:7", {0: (1,), 2: (5,)}, "3:1,0:1,2:5"),
        ("3:1,0:7,0:8", {0: ()}, "3:1"),
        ("0:7", {0: ()}, ""),
    ],
)
def test_a_list_keeps_what_does_not_move(
    given: str, moved: dict[int, Replicas], after: str
) -> None:
    assert merge(given, moved) == after


@pytest.mark.parametrize(
    ("rates", "shown"),
    [
        ({}, []),
        ({1: BrokerRate(1 << 20, is_own=True)}, ["1.0 MiB per second on 1"]),
        (
            {2: BrokerRate(1 << 10, is_own=True), 1: BrokerRate(1 << 20, is_own=False)},
            ["1.0 KiB to 1.0 MiB per second on 1 2"],
        ),
    ],
)
def test_a_list_without_a_rate_throttles_nothing(
    rates: dict[int, BrokerRate], shown: Sequence[str]
) -> None:
    found = throttles_shown({"t": ThrottledTopic("*", "")}, rates)

    assert found == [
        f"t is copied at {each}; headwater cluster unthrottle ends that" for each in shown
    ]


def test_progress_is_told_by_the_percent_with_what_is_left() -> None:
    said = list[str]()
    report = MoveReport(4, said.append)

    report.tell(1, {AT: CopyProgress(0, 1 << 20), OTHER: CopyProgress(0, 3 << 20)}, 0.0)
    report.tell(1, {AT: CopyProgress(1, 1 << 20), OTHER: CopyProgress(0, 3 << 20)}, 1.0)
    report.tell(1, {AT: CopyProgress(1 << 20, 1 << 20), OTHER: CopyProgress(0, 3 << 20)}, 10.0)
    report.tell(0, {OTHER: CopyProgress(3 << 20, 3 << 20)}, 40.0)

    assert said == [
        "1 of 4 partition(s) moved, 2 are copied to 0%, 4.0 MiB left: t-1 3.0 MiB, t-0 1.0 MiB",
        "1 of 4 partition(s) moved, 2 are copied to 25%, "
        "3.0 MiB left for about 30.0 s: t-1 3.0 MiB",
        "3 of 4 partition(s) moved, 1 are copied to 100%",
    ]


def test_a_copy_that_gains_nothing_for_a_minute_is_told_once() -> None:
    said = list[str]()
    report, at_s = MoveReport(1, said.append), moved_replicas.STALLED_S

    for step in range(10):
        report.tell(0, {AT: CopyProgress(10 + step, 100 + step)}, step * at_s / 3)

    assert [each for each in said if "copied to" not in each] == [
        "no less is left than 60 s ago: a broker is away, or others write faster than the rate"
    ]
