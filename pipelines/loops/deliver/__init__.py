"""From the log to a sink."""
