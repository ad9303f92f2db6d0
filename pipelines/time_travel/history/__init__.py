"""Points in time of a pipeline, and the history of a key."""
