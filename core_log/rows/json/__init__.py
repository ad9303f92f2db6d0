"""Rows and events in JSON."""
