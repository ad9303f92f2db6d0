"""Sharing the log: consumer groups, committed offsets and transactions."""
