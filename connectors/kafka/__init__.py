"""Topics of another Kafka-compatible cluster as a source."""
