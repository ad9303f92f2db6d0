"""Record batches in Kafka's format v2: written, read, compressed, partitioned."""
