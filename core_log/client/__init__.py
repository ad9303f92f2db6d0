"""Our Log over the wire: any Kafka-compatible cluster, batches as they are."""

from headwater.core_log.client.kafka_log import KafkaLog
from headwater.core_log.client.settings import FIRST_ANSWER_MS, KafkaSettings

__all__ = ["FIRST_ANSWER_MS", "KafkaLog", "KafkaSettings"]
