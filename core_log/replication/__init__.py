"""Replication of the log: leaders, followers, epochs and the cluster's metadata."""
