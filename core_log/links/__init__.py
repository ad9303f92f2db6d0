"""Connections to brokers, for clients and for other brokers: dial, authenticate, ask."""
