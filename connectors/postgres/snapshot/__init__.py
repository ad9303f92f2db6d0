"""Reads the rows that are there already, beside the stream or before it."""
