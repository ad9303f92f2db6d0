"""The broker: sockets, dispatch of requests, and the wiring of its parts."""
