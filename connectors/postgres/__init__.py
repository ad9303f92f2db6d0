"""The `postgres` source: rows as they are now, then every change from the write-ahead log."""
