"""One module per Kafka API that this broker answers."""
