"""Differences between databases, one module each."""
