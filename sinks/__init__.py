"""Sinks: each applies slices of the log to one kind of target."""
