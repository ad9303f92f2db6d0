"""From the socket of a replication connection to columns of text."""
