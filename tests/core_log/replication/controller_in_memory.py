"""A controller over an image in memory, whose decisions take hold at once."""

from itertools import count
from typing import TypeVar
from uuid import UUID

from headwater.core_log.replication.controller import Controller
from headwater.core_log.replication.decisions import Decision, NewTopic, RequestRefusal
from headwater.core_log.replication.features import SUPPORTED
from headwater.core_log.replication.metadata import MetadataChanges, MetadataImage, Topic
from headwater.core_log.replication.metadata_records import PartitionRecord
from headwater.core_log.replication.topic_config import TopicConfigs

Answer = TypeVar("Answer")


class Scene:
    def __init__(self, brokers: int = 1, defaults: dict[str, str] | None = None) -> None:
        self.numbers = count(1)
        self.image = MetadataImage()
        self.configs = TopicConfigs(defaults or {}, of_cluster=lambda: self.image.cluster_config)
        self.controller = Controller(
            self.image,
            self.configs,
            default_partitions=2,
            internal_partitions=4,
            new_id=lambda: UUID(int=next(self.numbers)),
        )
        self.changes = MetadataChanges()
        self.image.features.update(SUPPORTED)
        for broker_id in range(1, brokers + 1):
            self.register(broker_id)

    def commit(self, decision: Decision[Answer]) -> Answer:
        end_offset = self.image.end_offset + len(decision.records)
        self.changes = self.image.apply(decision.records, end_offset)
        return decision.answer

    def register(self, broker_id: int) -> int:
        return self.commit(
            self.controller.register_broker(
                broker_id, UUID(int=next(self.numbers)), host=f"host-{broker_id}", port=9092
            )
        )

    def create(self, name: str, partitions: int = 1, factor: int = 1, **config: str) -> Topic:
        named = {key.replace("_", "."): value for key, value in config.items()}
        wanted = NewTopic(name, partitions, factor, config=named)
        outcome = self.commit(self.controller.create_topics([wanted]))[name]
        assert isinstance(outcome, Topic), outcome
        return self.topic(name)

    def refused(self, wanted: NewTopic) -> RequestRefusal:
        decision = self.controller.create_topics([wanted])
        outcome = decision.answer[wanted.name]
        assert isinstance(outcome, RequestRefusal) and not decision.records
        return outcome

    def topic(self, name: str) -> Topic:
        topic = self.image.topic(name)
        assert topic is not None
        return topic

    def partition(self, name: str, index: int = 0) -> PartitionRecord:
        partition = self.image.partition(name, index)
        assert partition is not None
        return partition
