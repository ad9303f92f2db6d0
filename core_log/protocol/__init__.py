"""Bytes on the wire: Kafka's messages, declared once and compiled per version."""
