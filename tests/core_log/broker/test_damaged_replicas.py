"""A broker whose files have lost records says so before it may lead, and copies them anew."""

from collections.abc import AsyncIterator, Callable
from random import Random

import pytest

from headwater.core_log.broker.replica_losses import ReplicaLosses
from headwater.core_log.foundation.clock import SystemClock
from headwater.core_log.foundation.errors import ConfigError, CorruptLog
from headwater.core_log.replication.metadata import METADATA_TOPIC, NO_LEADER
from headwater.core_log.storage.damaged_batches import empty_damaged
from headwater.core_log.storage.log_config import LogConfig
from headwater.core_log.storage.properties import read_properties, read_topic_id
from headwater.core_log.storage.store import Store
from headwater.core_log.storage.verification import Promise
from tests.builders import DATA, batch
from tests.core_log.broker.cluster_in_memory import Cluster
from tests.core_log.broker.replicated_topic import create, produce, record_of, start_three, stored
from tests.fakes import MemoryFiles

pytestmark = pytest.mark.slow

LOG = DATA / "log"
PARTITION = LOG / "t-0"
SEGMENT = PARTITION / f"{0:020}.log"
POINTS = LOG / "recovery-point-offset-checkpoint"
Damage = Callable[[MemoryFiles], None]


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    cluster = Cluster()
    yield cluster
    await cluster.close()


async def only_two_have_everything(cluster: Cluster) -> tuple[int, int, int]:
    """Returns the replica that had the records last, one that had them too and is down, and one
    that lacks some; all three are down."""
    await start_three(cluster)
    await create(cluster)
    await produce(cluster, "a")
    lagging = next(each for each in (3, 2) if each != record_of(cluster).leader)
    cluster.kill(lagging)
    await cluster.until(lambda: lagging not in record_of(cluster).in_sync)
    await produce(cluster, "b", "c", "d")
    complete = record_of(cluster)
    assert len(complete.in_sync) == 2
    damaged, whole = complete.leader, next(e for e in complete.in_sync if e != complete.leader)
    cluster.kill(damaged)
    cluster.kill(whole)
    return damaged, whole, lagging


def flip(files: MemoryFiles) -> None:
    """Inside the last batch, below the recovery point."""
    files.files[SEGMENT].flip_bit(files.size(SEGMENT) - 20)


def lose_end(files: MemoryFiles) -> None:
    files.files[SEGMENT].truncate(files.size(SEGMENT) - 10)


def cut_inside(files: MemoryFiles) -> None:
    """As after a power cut: the recovery point is an old one, and whole batches follow."""
    forget_points(files)
    files.files[SEGMENT].flip_bit(100)


def forget_points(files: MemoryFiles) -> None:
    lines = files.read(POINTS).split(b"\n")
    kept = [b"t 0 " + b"0" * 20 if line.startswith(b"t 0") else line for line in lines]
    files.replace(POINTS, b"\n".join(kept))


def lose_points(files: MemoryFiles) -> None:
    """Nothing tells any more that the log is shorter than it was."""
    files.remove(POINTS)
    files.files[SEGMENT].truncate(size_of_batches(files, 1))


def size_of_batches(files: MemoryFiles, count: int) -> int:
    return len(batch("a")) * count


def lose_directory(files: MemoryFiles) -> None:
    for name in files.names(PARTITION):
        files.remove(PARTITION / name)
    files.remove_directory(PARTITION)


def mend(files: MemoryFiles) -> None:
    flip(files)
    assert list(empty_damaged(files, PARTITION, Promise(recovery_point=4), now_ms=1))


def crash_at_the_start(files: MemoryFiles) -> None:
    """The start that found the damage got no further."""
    cut_inside(files)
    node_id = int(read_properties(files, DATA / "meta.properties")["node.id"])
    store = Store.open(DATA, files=files, clock=SystemClock(), random=Random(1), node_id=node_id)
    topic_id = read_topic_id(files, PARTITION)
    assert topic_id is not None
    log = store.open_partition("t", 0, topic_id=topic_id, config=LogConfig())
    assert log.end_offset < 4, "it is cut"
    store.close(clean=False)
    files.after_kill()


@pytest.mark.parametrize(
    "damage",
    [flip, lose_end, cut_inside, lose_directory, mend, crash_at_the_start],
)
async def test_a_replica_that_lost_records_does_not_lead_before_it_has_them_again(
    cluster: Cluster, damage: Damage
) -> None:
    damaged, whole, lagging = await only_two_have_everything(cluster)
    files = cluster.files[damaged]
    assert isinstance(files, MemoryFiles)
    damage(files)

    await come_back_without(cluster, damaged, lagging)
    without = record_of(cluster)
    await cluster.start(whole)
    await cluster.until(lambda: len(record_of(cluster).in_sync) == 3)

    assert without.leader == NO_LEADER
    assert without.in_sync + without.eligible == (whole,)
    for broker in cluster.brokers.values():
        assert stored(broker) == [b"a", b"b", b"c", b"d"]
    assert not cluster.brokers[damaged].store.losses


async def come_back_without(cluster: Cluster, damaged: int, lagging: int) -> None:
    """The two are a majority of the quorum."""
    cluster.boot(damaged)
    await cluster.start(lagging)
    await cluster.until(lambda: cluster.brokers[damaged].is_open)


async def test_a_loss_that_is_not_told_is_found(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rule R6 taken out: the damaged replica leads, and what the third one has is given up."""
    damaged, _, lagging = await only_two_have_everything(cluster)
    files = cluster.files[damaged]
    assert isinstance(files, MemoryFiles)
    cut_inside(files)
    monkeypatch.setattr(ReplicaLosses, "_replicated", lambda self: iter(()))

    await come_back_without(cluster, damaged, lagging)

    await cluster.until(lambda: record_of(cluster).leader == damaged)
    assert len(stored(cluster.brokers[damaged])) < 4


async def test_the_remains_of_a_damaged_partition_are_kept_beside_its_copy(
    cluster: Cluster,
) -> None:
    damaged, whole, _ = await only_two_have_everything(cluster)
    files = cluster.files[damaged]
    assert isinstance(files, MemoryFiles)
    flip(files)
    content = files.read(SEGMENT)

    cluster.boot(damaged)
    await cluster.start(whole)
    await cluster.until(lambda: len(record_of(cluster).in_sync) == 2)

    (aside,) = [each for each in files.names(LOG) if each.endswith("-damaged")]
    assert files.read(LOG / aside / SEGMENT.name) == content


async def test_a_replica_whose_recovery_point_is_lost_is_not_counted_upon(
    cluster: Cluster,
) -> None:
    """Nothing tells any more that its log is shorter than it was. Its vote says little, too: nobody
    is elected without all voters."""
    damaged, whole, lagging = await only_two_have_everything(cluster)
    files = cluster.files[damaged]
    assert isinstance(files, MemoryFiles)
    lose_points(files)

    cluster.boot(damaged)
    cluster.boot(lagging)
    await cluster.start(whole)
    await cluster.until(lambda: len(record_of(cluster).in_sync) == 3)

    for broker in cluster.brokers.values():
        assert stored(broker) == [b"a", b"b", b"c", b"d"]
    await cluster.until(lambda: not cluster.brokers[damaged].store.losses)


async def test_replicas_that_were_all_cut_lead_again_once_all_are_back(cluster: Cluster) -> None:
    """As after a power cut of all: nothing that was promised is missing."""
    await start_three(cluster)
    await create(cluster)
    await produce(cluster, "a", "b")
    for each in (1, 2, 3):
        cluster.kill(each)
        files = cluster.files[each]
        assert isinstance(files, MemoryFiles)
        forget_points(files)
        torn, after = batch("x", "y"), batch("z")
        size, file = files.size(SEGMENT), files.files[SEGMENT]
        file.write(size, bytes(len(torn)))
        file.write(size + len(torn), with_offset(after, 4))

    for each in (1, 2, 3):
        cluster.boot(each)
    await cluster.until(lambda: all(each.is_open for each in cluster.brokers.values()))
    await cluster.until(lambda: len(record_of(cluster).in_sync) == 3)
    await produce(cluster, "c")

    for broker in cluster.brokers.values():
        assert stored(broker)[:3] == [b"a", b"b", b"c"]


def with_offset(data: bytearray, offset: int) -> bytes:
    return offset.to_bytes(8, "big") + data[8:]


async def test_a_partition_with_one_replica_is_led_on_by_a_broker_that_lost_its_vote(
    cluster: Cluster,
) -> None:
    """Its directory gets a new id, and has its partitions all the same."""
    await start_three(cluster)
    await create(cluster, factor=1, minimum=1)
    await produce(cluster, "a")
    leader = record_of(cluster).leader
    cluster.kill(leader)
    await cluster.until(lambda: record_of(cluster).leader == NO_LEADER)
    cluster.files[leader].remove(LOG / f"{METADATA_TOPIC}-0" / "quorum-state")

    again = await cluster.start(leader)

    assert record_of(cluster).leader == leader
    assert stored(again) == [b"a"]


async def test_a_damaged_metadata_log_is_copied_by_a_new_voter(cluster: Cluster) -> None:
    await start_three(cluster)
    await create(cluster)
    before = cluster.brokers[3].store.directory_id
    cluster.kill(3)
    files = cluster.files[3]
    assert isinstance(files, MemoryFiles)
    segment = LOG / f"{METADATA_TOPIC}-0" / SEGMENT.name
    files.files[segment].truncate(files.size(segment) - 5)

    with pytest.raises(CorruptLog, match="metadata") as refused:
        cluster.boot(3, join=False)
    files.after_kill()
    third = await cluster.start(3)

    assert "--join" in str(refused.value)
    assert third.store.directory_id != before
    await cluster.until(lambda: third.quorum.replica in cluster.brokers[1].quorum.voters)
    assert third.image.topic("t") is not None


@pytest.mark.parametrize("broker_id", [1, 3])
async def test_a_member_without_its_metadata_begins_no_cluster_of_its_own(
    cluster: Cluster, broker_id: int
) -> None:
    """Not even the one that began this one: it would answer clients from an empty log."""
    await start_three(cluster)
    await cluster.until(lambda: cluster.brokers[broker_id].store.has_joined)
    cluster.kill(broker_id)
    files = cluster.files[broker_id]
    assert isinstance(files, MemoryFiles)
    lost = LOG / f"{METADATA_TOPIC}-0"
    for name in files.names(lost):
        files.remove(lost / name)
    files.remove_directory(lost)

    with pytest.raises(CorruptLog, match="missing"):
        cluster.boot(broker_id, join=False)


async def test_a_member_does_not_start_without_syncs(cluster: Cluster) -> None:
    await start_three(cluster)
    await cluster.stop(3)

    with pytest.raises(ConfigError, match="fsync=never"):
        await cluster.start(3, fsync="never")
    cluster.kill(3)


async def test_an_older_copy_of_a_directory_is_not_counted_upon(cluster: Cluster) -> None:
    """The copy was made after a clean stop; its broker has promised more since."""
    await start_three(cluster)
    await create(cluster)
    await produce(cluster, "a")
    await cluster.stop(3)
    files = cluster.files[3]
    assert isinstance(files, MemoryFiles)
    copy = files.copy()
    await cluster.start(3)
    await cluster.until(lambda: len(record_of(cluster).in_sync) == 3)
    await produce(cluster, "b")
    for each in (1, 2):
        cluster.kill(each)
    cluster.kill(3)
    cluster.files[3] = copy

    cluster.boot(3)
    await cluster.start(2)
    await cluster.until(lambda: cluster.brokers[3].is_open)
    record = record_of(cluster)

    assert 3 not in {record.leader, *record.eligible}
