"""The log: partitioned, ordered, durable, and speaking Kafka's protocol."""
