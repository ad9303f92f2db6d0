"""Serving the log: sockets, dispatch and the wiring of one broker."""
