"""Backups of logs, in memory, in directories and in a bucket."""
