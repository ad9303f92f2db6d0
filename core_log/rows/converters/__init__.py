"""The wire form of the values of each column type."""
