"""One module per Kafka API: its request and its response."""
