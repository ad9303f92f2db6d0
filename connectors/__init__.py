"""Sources: each reads one kind of external system and emits its changes as batches."""
