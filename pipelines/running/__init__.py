"""Processes: who owns a log, who runs what, and what happens when it fails."""
