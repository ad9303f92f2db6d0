"""Rows as keys and values of records: one codec per value format."""
