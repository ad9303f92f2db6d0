"""Iceberg tables by pyiceberg: files by our own writers, and a commit of the catalog."""
