"""Bytes on disk: Kafka's segment files and what keeps them true."""
