"""Transforms of rows: before the log what must not enter it, after the log the rest."""
