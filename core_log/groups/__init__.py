"""Consumer groups, committed offsets and transactions."""
