"""Connections to brokers: dial, agree on versions, authenticate, ask. For clients and brokers."""
