"""From WAL batches to change events: keys, TOAST values, source blocks, rejects."""
