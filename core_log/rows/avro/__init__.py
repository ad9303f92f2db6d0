"""Rows and events in Avro, against a schema registry."""
