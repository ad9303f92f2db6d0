"""Makes kafka-python ask for metadata often: a consumer can forget a subscription, and remembers
it with the next metadata only (tests/compat/FINDINGS.md, 9)."""

from kafka import KafkaConsumer

KafkaConsumer.DEFAULT_CONFIG["metadata_max_age_ms"] = 300
