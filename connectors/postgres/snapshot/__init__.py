"""Initial and incremental snapshots: reads existing rows, before the stream or beside it."""
