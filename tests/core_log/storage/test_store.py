"""A data directory has one owner, says what it is, and keeps what belongs to it apart."""

import logging
from random import Random
from uuid import UUID

import pytest

from headwater.core_log.foundation.errors import ConfigError, CorruptLog, DirectoryInUse
from headwater.core_log.model.log import TopicPartition
from headwater.core_log.storage.log_config import LogConfig
from headwater.core_log.storage.properties import (
    decode_uuid,
    encode_uuid,
    new_uuid,
    read_topic_id,
)
from headwater.core_log.storage.store import Store
from tests.builders import DATA, TOPIC_ID, append, open_log, open_store, sync, values_of
from tests.fakes import MemoryFiles, SimulatedClock

OTHER_ID = UUID(int=8)


def test_a_second_owner_is_told_who_the_first_is() -> None:
    files = MemoryFiles()
    store = open_store(files)

    with pytest.raises(DirectoryInUse) as caught:
        open_store(files)

    owner = files.read(DATA / "lock").decode().strip()
    assert f"stop process {owner}" in caught.value.hint
    store.close()
    open_store(files)


def test_a_directory_keeps_its_identity() -> None:
    files = MemoryFiles()
    first = open_store(files)
    cluster_id, directory_id = first.cluster_id, first.directory_id
    first.close()

    again = open_store(files)

    assert (again.cluster_id, again.directory_id) == (cluster_id, directory_id)
    assert decode_uuid(cluster_id) != decode_uuid(directory_id)
    content = files.read(DATA / "meta.properties").decode()
    assert "version=1\n" in content
    assert f"cluster.id={cluster_id}\n" in content
    assert "node.id=1\n" in content


@pytest.mark.parametrize(
    ("old", "new"), [(b"node.id=1", b"node.id=2"), (b"version=1", b"version=9"), (b"node.id", b"x")]
)
def test_another_nodes_or_versions_directory_is_refused(old: bytes, new: bytes) -> None:
    files = MemoryFiles()
    open_store(files).close()
    path = DATA / "meta.properties"
    files.replace(path, files.read(path).replace(old, new))

    with pytest.raises(ConfigError):
        open_store(files)


def test_the_endpoint_file_is_for_this_user_only() -> None:
    files = MemoryFiles()
    store = open_store(files)

    store.write_endpoint(b"{}")

    assert files.files[DATA / "endpoint.json"].mode == 0o600
    store.remove_endpoint()
    assert not files.exists(DATA / "endpoint.json")


def test_a_partition_says_whose_topic_it_is() -> None:
    files = MemoryFiles()
    open_log(files)

    assert read_topic_id(files, DATA / "log" / "orders-0") == TOPIC_ID
    content = files.read(DATA / "log" / "orders-0" / "partition.metadata")
    assert content == b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAABw\n"


def test_a_leftover_of_an_older_topic_is_put_aside_but_a_wanted_one_never(
    caplog: pytest.LogCaptureFixture,
) -> None:
    files = MemoryFiles()
    store, log = open_log(files)
    append(log, "of the old topic")
    sync(log, store)
    store.close()

    store = open_store(files)
    with pytest.raises(CorruptLog, match="another topic"):
        store.open_partition("orders", 0, topic_id=OTHER_ID, config=LogConfig())
    store.close()
    store = open_store(files)
    with caplog.at_level(logging.WARNING):
        store.report_strays()
        log = store.open_partition("orders", 0, topic_id=OTHER_ID, config=LogConfig())

    assert log.end_offset == 0
    assert "belongs to another topic" in caplog.text
    assert [name for name in files.names(DATA / "log") if name.endswith("-stray")]


def test_deleting_a_partition_frees_its_name_at_once_and_its_files_later() -> None:
    files = MemoryFiles()
    store, log = open_log(files)
    append(log, "x")
    sync(log, store)
    held = log.read(0, below=1, bytes_max=1000, at_least_one=True)

    removal = store.delete_partition("orders", 0)
    fresh = store.open_partition("orders", 0, topic_id=OTHER_ID, config=LogConfig())

    assert fresh.end_offset == 0
    assert [name for name in files.names(DATA / "log") if name.endswith("-delete")]
    assert removal is not None
    removal.run()
    assert not [name for name in files.names(DATA / "log") if name.endswith("-delete")]
    assert held is not None
    assert held.read()


def test_a_topic_made_anew_after_a_restart_has_no_marks_of_the_former_one() -> None:
    files = MemoryFiles()
    store, log = open_log(files)
    append(log, "former")
    log.note_cleaned(cleaned_to=1, deletes_dropped_to=1)
    log.note_compacted(1)
    store.write_high_watermarks([(log, 1)])
    store.close()
    store, _ = open_log(files)
    removal = store.delete_partition("orders", 0)
    assert removal is not None
    removal.run()
    log = store.open_partition("orders", 0, topic_id=OTHER_ID, config=LogConfig())
    append(log, "new")
    store.close()

    store = open_store(files)
    log = store.open_partition("orders", 0, topic_id=OTHER_ID, config=LogConfig())

    assert (log.cleaned_to, log.deletes_dropped_to, log.first_dirty_offset) == (0, 0, 0)
    assert store.high_watermark(log) == 0


def test_an_interrupted_deletion_is_finished_at_the_next_start() -> None:
    files = MemoryFiles()
    store, log = open_log(files)
    append(log, "x")
    store.delete_partition("orders", 0)
    store.close()

    open_store(files)

    assert not [name for name in files.names(DATA / "log") if "orders" in name]


def test_the_longest_topic_name_can_be_deleted() -> None:
    files = MemoryFiles()
    name = "t" * 249
    store, _ = open_log(files, topic=name)

    store.delete_partition(name, 0)

    assert max(len(each) for each in files.names(DATA / "log")) <= 255


def test_partitions_that_nobody_opens_are_named(caplog: pytest.LogCaptureFixture) -> None:
    files = MemoryFiles()
    store, _ = open_log(files)
    store.close()
    store = open_store(files)

    with caplog.at_level(logging.WARNING):
        store.report_strays()

    assert "orders-0" in caplog.text
    assert store.found == {TopicPartition("orders", 0)}


def test_topics_with_dashes_are_told_apart() -> None:
    files = MemoryFiles()
    store = open_store(files)
    for topic in ("a", "a-1", "a-1-2"):
        log = store.open_partition(topic, 0, topic_id=TOPIC_ID, config=LogConfig())
        append(log, topic)
    store.close()

    store = open_store(files)

    for topic in ("a", "a-1", "a-1-2"):
        log = store.open_partition(topic, 0, topic_id=TOPIC_ID, config=LogConfig())
        assert values_of(log) == [(0, topic.encode())]


def test_no_id_begins_with_a_dash_as_options_of_tools_do() -> None:
    texts = [encode_uuid(new_uuid(Random(seed))) for seed in range(1_000)]

    assert not [each for each in texts if each.startswith("-")]
    assert len({*texts}) == len(texts)


def test_names_and_ids_come_from_the_randomness_that_was_given() -> None:
    def cluster_id() -> str:
        clock = SimulatedClock()
        store = Store.open(DATA, files=MemoryFiles(), clock=clock, random=Random(5), node_id=1)
        return store.cluster_id

    assert cluster_id() == cluster_id()


def test_a_store_with_a_damaged_partition_is_not_marked_clean() -> None:
    files = MemoryFiles()
    store, log = open_log(files)
    append(log, "x")
    sync(log, store)
    store.close(clean=False)
    files.open(log.segments.active.path).truncate(5)
    store = open_store(files)
    with pytest.raises(CorruptLog):
        store.open_partition("orders", 0, topic_id=TOPIC_ID, config=LogConfig())
    store.close()

    assert not open_store(files).was_clean


def test_a_clean_stop_without_syncs_still_puts_everything_on_disk() -> None:
    files = MemoryFiles()
    store, log = open_log(files, config=LogConfig(segment_bytes=200))
    for number in range(6):
        append(log, f"value {number}" + "x" * 50)
        log.trust_written()
    assert (log.durable_offset, log.recovery_point) == (6, 0)
    store.close()

    for seed in range(10):
        survived = files.after_power_cut(Random(seed))
        _, again = open_log(survived, config=LogConfig(segment_bytes=200))
        assert again.end_offset == again.recovery_point == 6
        assert len(values_of(again)) == 6


def test_a_sync_that_outlives_its_partition_is_no_failure() -> None:
    store, log = open_log(MemoryFiles())
    append(log, "x")
    job = log.sync_job()

    store.delete_partition("orders", 0)

    job.run()
