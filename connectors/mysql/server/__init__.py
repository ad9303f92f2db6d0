"""Connections, the kind of server, its GTIDs and its catalogue."""
