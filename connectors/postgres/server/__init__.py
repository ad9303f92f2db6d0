"""The server itself: connections, LSNs, SQL identifiers."""
