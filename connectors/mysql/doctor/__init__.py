"""Checks before a start."""
