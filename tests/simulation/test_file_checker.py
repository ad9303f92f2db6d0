"""The checker of the nodes' files finds every kind of fault that is planted into sound ones."""

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from headwater.core_log.model.log import TopicPartition
from headwater.core_log.records.record_codec import PlainRecord, encode_batch
from tests.simulation.file_checker import Assignment, FileChecker, Look, problems_of_stopped
from tests.simulation.stored_log import LOG, read_disk

ORDERS, NEWEST = TopicPartition("orders", 0), TopicPartition("newest", 0)
COMPACTED = frozenset({"newest"})
END = 6
Disk = dict[str, bytes]


def batch(base_offset: int, epoch: int, *values: bytes) -> bytes:
    records = [PlainRecord(b"key", value, timestamp_ms=1) for value in values]
    content = bytearray(encode_batch(records))
    content[:8] = base_offset.to_bytes(8, "big")
    content[12:16] = epoch.to_bytes(4, "big")
    return bytes(content)


def checkpoint(*lines: str) -> bytes:
    return "\n".join(["0", str(len(lines)), *lines, ""]).encode()


def offsets(**of_topics: int) -> bytes:
    return checkpoint(*(f"{topic} 0 {offset:020}" for topic, offset in of_topics.items()))


def sound() -> Disk:
    """Two segments of a topic in two epochs, with an index, and a topic that is compacted."""
    first = batch(0, 1, b"a", b"b")
    return {
        f"{LOG}/orders-0/{0:020}.log": first + batch(2, 1, b"c"),
        f"{LOG}/orders-0/{0:020}.index": index(2, len(first)),
        f"{LOG}/orders-0/{3:020}.log": batch(3, 2, b"d", b"e", b"f"),
        f"{LOG}/orders-0/leader-epoch-checkpoint": checkpoint("1 0", "2 3"),
        f"{LOG}/newest-0/{0:020}.log": batch(0, 1, b"a", b"b") + batch(4, 1, b"c", b"d"),
        f"{LOG}/newest-0/leader-epoch-checkpoint": checkpoint("1 0"),
        f"{LOG}/__cluster_metadata-0/{0:020}.log": batch(0, 1, b"a"),
        f"{LOG}/__cluster_metadata-0/leader-epoch-checkpoint": checkpoint("1 0"),
        f"{LOG}/__cluster_metadata-0/quorum-state": quorum_state(1),
        f"{LOG}/replication-offset-checkpoint": offsets(orders=END, newest=END),
        f"{LOG}/recovery-point-offset-checkpoint": offsets(orders=END, newest=END),
        f"{LOG}/cleaned-to-offset-checkpoint": offsets(orders=0, newest=4),
        f"{LOG}/{END:020}.log": b"in no partition",
    }


def index(offset: int, position: int) -> bytes:
    return offset.to_bytes(4, "big") + position.to_bytes(4, "big")


def quorum_state(epoch: int) -> bytes:
    return b'{"leaderEpoch": %d}' % epoch


@dataclass
class Cluster:
    """Three nodes whose disks have everything, and all of whom are in sync."""

    disks: dict[int, Disk] = field(default_factory=lambda: {node: sound() for node in (1, 2, 3)})
    synced: dict[int, Disk] = field(default_factory=lambda: {node: sound() for node in (1, 2, 3)})
    in_sync: tuple[int, ...] = (1, 2, 3)

    def look(self) -> Look:
        read = {node: read_disk(disk) for node, disk in self.disks.items()}
        return Look(
            written=read,
            synced={node: read_disk(disk) for node, disk in self.synced.items()},
            told={1: {ORDERS: END, NEWEST: END}, 2: {ORDERS: 3}},
            assignments={at: Assignment(self.in_sync, 2) for at in (ORDERS, NEWEST)},
            compacted=COMPACTED,
        )

    @property
    def problems(self) -> list[str]:
        """At two moments, and once all have stopped."""
        checker, stopped = FileChecker(), {n: read_disk(disk) for n, disk in self.disks.items()}
        before = checker.problems_of(Cluster().look())
        found = checker.problems_of(self.look())
        return [*before, *found, *problems_of_stopped(stopped, compacted=COMPACTED)]

    def put(self, name: str, content: bytes, node: int = 3) -> None:
        self.disks[node][f"{LOG}/{name}"] = content

    def drop(self, name: str, node: int = 3) -> None:
        del self.disks[node][f"{LOG}/{name}"]


LAST = f"orders-0/{3:020}.log"
FIRST = f"orders-0/{0:020}.log"


def test_sound_files_have_no_problem() -> None:
    assert Cluster().problems == []


def test_replicas_may_differ_above_their_high_watermarks_and_in_what_compaction_removed() -> None:
    cluster = Cluster()
    cluster.put(LAST, cluster.disks[3][f"{LOG}/{LAST}"] + batch(6, 2, b"late"))
    cluster.put("recovery-point-offset-checkpoint", offsets(orders=7, newest=END))
    cluster.put(f"newest-0/{0:020}.log", batch(4, 1, b"c", b"d"))

    assert cluster.problems == []


def test_an_empty_log_of_the_metadata_is_of_no_epoch() -> None:
    cluster = Cluster()
    for disks in (cluster.disks, cluster.synced):
        disks[3][f"{LOG}/__cluster_metadata-0/{0:020}.log"] = b""
        del disks[3][f"{LOG}/__cluster_metadata-0/quorum-state"]

    assert cluster.problems == []


def lose_the_end_of_a_disk(cluster: Cluster) -> None:
    del cluster.synced[3][f"{LOG}/{LAST}"]


def commit_on_one_disk(cluster: Cluster) -> None:
    cluster.in_sync = (1,)
    for node in (2, 3):
        del cluster.synced[node][f"{LOG}/{LAST}"]


def change_a_committed_batch(cluster: Cluster) -> None:
    cluster.put(LAST, batch(3, 2, b"d", b"e", b"x"))


def change_it_where_it_is_not_committed(cluster: Cluster) -> None:
    change_a_committed_batch(cluster)
    cluster.put("replication-offset-checkpoint", offsets(orders=3, newest=END))


def write_it_in_another_epoch(cluster: Cluster) -> None:
    cluster.put(LAST, batch(3, 3, b"d", b"e", b"f"))
    cluster.put("orders-0/leader-epoch-checkpoint", checkpoint("1 0", "3 3"))


def change_a_compacted_record(cluster: Cluster) -> None:
    cluster.put(f"newest-0/{0:020}.log", batch(4, 1, b"c", b"x"))


def flip_a_bit(cluster: Cluster) -> None:
    content = bytearray(cluster.disks[3][f"{LOG}/{LAST}"])
    content[-2] ^= 1
    cluster.put(LAST, bytes(content))


def tear(cluster: Cluster) -> None:
    cluster.put(LAST, cluster.disks[3][f"{LOG}/{LAST}"] + batch(6, 2, b"late")[:50])


def leave_a_gap(cluster: Cluster) -> None:
    cluster.put(FIRST, batch(0, 1, b"a", b"b"))
    cluster.drop(f"orders-0/{0:020}.index")


def write_offsets_twice(cluster: Cluster) -> None:
    cluster.put(LAST, cluster.disks[3][f"{LOG}/{LAST}"] + batch(5, 2, b"g"))


def go_back_by_an_epoch(cluster: Cluster) -> None:
    cluster.put(LAST, cluster.disks[3][f"{LOG}/{LAST}"] + batch(6, 1, b"g"))


def misplace_a_segment(cluster: Cluster) -> None:
    cluster.put(f"orders-0/{4:020}.log", cluster.disks[3][f"{LOG}/{LAST}"])
    cluster.drop(LAST)


def forget_an_epoch(cluster: Cluster) -> None:
    cluster.put("orders-0/leader-epoch-checkpoint", checkpoint("1 0"))


def turn_epochs_round(cluster: Cluster) -> None:
    cluster.put("orders-0/leader-epoch-checkpoint", checkpoint("2 3", "1 0"))


def point_into_a_batch(cluster: Cluster) -> None:
    cluster.put(f"orders-0/{0:020}.index", index(2, 7))


def mark_beyond_the_end(cluster: Cluster) -> None:
    cluster.put("replication-offset-checkpoint", offsets(orders=END + 1, newest=END))


def compact_unannounced(cluster: Cluster) -> None:
    cluster.put(f"newest-0/{0:020}.log", batch(0, 1, b"a", b"b") + batch(5, 1, b"d"))


def write_in_an_unstored_epoch(cluster: Cluster) -> None:
    cluster.synced[3][f"{LOG}/__cluster_metadata-0/quorum-state"] = quorum_state(0)


def stop_with_unsynced_records(cluster: Cluster) -> None:
    cluster.put("recovery-point-offset-checkpoint", offsets(orders=3, newest=END))


@pytest.mark.parametrize(
    ("plant", "problem"),
    [
        (lose_the_end_of_a_disk, "not on every disk: orders-0 is committed to 6, and node 3"),
        (commit_on_one_disk, "on too few disks: orders-0 is committed to 6, which 1 of 2"),
        (change_a_committed_batch, "two values: orders-0 on node 3"),
        (change_it_where_it_is_not_committed, "two leaders: orders-0 on node 3"),
        (write_it_in_another_epoch, "two values: orders-0 on node 3"),
        (change_a_compacted_record, "two values: newest-0 on node 3"),
        (flip_a_bit, "damaged: orders-0 on node 3"),
        (tear, "torn: orders-0 on node 3 ends with 50 bytes"),
        (leave_a_gap, "offsets are missing: orders-0 on node 3 from 2 to 3"),
        (write_offsets_twice, "offset goes back: orders-0 on node 3 from 6 to 5"),
        (go_back_by_an_epoch, "epoch goes back: orders-0 on node 3 from 2 to 1"),
        (misplace_a_segment, "misplaced: orders-0 on node 3"),
        (forget_an_epoch, "other epoch: orders-0 on node 3 has epoch 2"),
        (turn_epochs_round, "epochs out of order: orders-0 on node 3"),
        (point_into_a_batch, "bad index: orders-0 on node 3"),
        (mark_beyond_the_end, "beyond the end: orders-0 on node 3"),
        (compact_unannounced, "compacted unannounced: node 3 lacks offset 4 of newest-0"),
        (write_in_an_unstored_epoch, "epoch not on disk: __cluster_metadata-0 on node 3"),
        (stop_with_unsynced_records, "recovery point behind the end: orders-0 on node 3"),
    ],
)
def test_a_planted_fault_is_found(plant: Callable[[Cluster], None], problem: str) -> None:
    cluster = Cluster()
    plant(cluster)

    found = cluster.problems

    assert any(each.startswith(problem) for each in found), found
