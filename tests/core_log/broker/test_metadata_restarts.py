"""What an administrator was told is done stays done, through restarts and power cuts."""

from random import Random

import pytest

from headwater.core_log.broker.broker import Broker
from headwater.core_log.replication import metadata_log
from headwater.core_log.replication.decisions import (
    ConfigChange,
    ConfigOperation,
    MorePartitions,
    NewTopic,
    RequestRefusal,
    TopicReference,
)
from tests.core_log.broker.in_memory import started
from tests.fakes import MemoryFiles

NAMES = ("a", "b", "c", "d")


async def create(broker: Broker, name: str, **config: str) -> None:
    wanted = [NewTopic(name, 2, config={key.replace("_", "."): config[key] for key in config})]
    outcome = await broker.metadata.change(lambda: broker.controller.create_topics(wanted))
    assert not isinstance(outcome[name], RequestRefusal)


async def administer(broker: Broker, random: Random) -> None:
    """One thing an administrator may do to a topic that may or may not exist."""
    name, controller = random.choice(NAMES), broker.controller
    config = [ConfigChange("segment.ms", ConfigOperation.SET, str(random.randint(1, 99)))]
    match random.randrange(4):
        case 0:
            await broker.metadata.change(lambda: controller.create_topics([NewTopic(name, 2)]))
        case 1:
            await broker.metadata.change(lambda: controller.delete_topics([TopicReference(name)]))
        case 2:
            wanted = [MorePartitions(name, random.randint(1, 4))]
            await broker.metadata.change(lambda: controller.create_partitions(wanted))
        case _:
            await broker.metadata.change(lambda: controller.alter_config(name, config))


def topics(broker: Broker) -> dict[str, object]:
    return {
        name: (topic.topic_id, sorted(topic.partitions), topic.config)
        for name, topic in broker.image.topics.items()
    }


async def test_topics_survive_and_their_leader_epochs_grow_with_every_start() -> None:
    broker = await started(files := MemoryFiles())
    await create(broker, "t", retention_ms="5")
    before = topics(broker)
    await broker.close()

    for start in (1, 2, 3):
        registered = broker.broker_epoch
        broker = await started(files)
        partition = broker.find_led("t", 1)

        assert topics(broker) == before
        assert partition is not None and partition.leader_epoch == start
        assert partition.log.config.retention_ms == 5
        assert broker.broker_epoch > registered
        await broker.close()


async def test_producer_ids_are_never_handed_out_again() -> None:
    broker = await started(files := MemoryFiles())
    first = await broker.allocate_producer_ids()
    cut = await started(files.after_power_cut(Random(1)))

    second = await cut.allocate_producer_ids()

    assert not set(first) & set(second)
    await cut.close()
    await broker.close()


async def test_a_snapshot_carries_the_cluster_through_restarts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(metadata_log, "SNAPSHOT_AFTER_RECORDS", 10)
    broker = await started(files := MemoryFiles())
    for round_number in range(4):
        for _ in range(4):
            await broker.allocate_producer_ids()
        await create(broker, f"t{round_number}")
        await broker.metadata.snapshot_if_grown(now_ms=1)
        before = topics(broker)
        await broker.close()

        broker = await started(files)

        assert topics(broker) == before
    snapshots = [
        name
        for name in files.names(broker.store.log_directory / "__cluster_metadata-0")
        if name.endswith(".checkpoint")
    ]
    assert len(snapshots) == 1
    await broker.close()


@pytest.mark.property
@pytest.mark.parametrize("seed", range(25))
async def test_a_power_cut_takes_back_nothing_that_was_answered(seed: int) -> None:
    random = Random(seed)
    broker = await started(files := MemoryFiles())
    for _ in range(12):
        await administer(broker, random)

    after = await started(files.after_power_cut(random))

    assert topics(after) == topics(broker)
    for name, topic in after.image.topics.items():
        assert all(after.find_led(name, index) is not None for index in topic.partitions)
    await after.close()
    await broker.close()
