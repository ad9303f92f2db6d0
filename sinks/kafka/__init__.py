"""Topics of another Kafka-compatible cluster as a target."""
