"""Source to log and log to sink: the two loops and their steps."""
