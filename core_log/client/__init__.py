"""The Log over the network: any Kafka-compatible cluster, with batches unchanged."""

from headwater.core_log.client.kafka_log import KafkaLog
from headwater.core_log.client.settings import FIRST_ANSWER_MS, KafkaSettings

__all__ = ["FIRST_ANSWER_MS", "KafkaLog", "KafkaSettings"]
