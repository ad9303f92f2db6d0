"""The replication slot: resume check, heartbeat, standbys."""
