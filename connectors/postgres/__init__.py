"""The `postgres` source: an initial snapshot of all rows, then every change from the write-ahead
log."""
