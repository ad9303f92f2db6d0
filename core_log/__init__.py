"""The log: partitioned, ordered, durable, and accessible by Kafka's protocol."""
