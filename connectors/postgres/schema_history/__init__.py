"""How captured tables and columns change over time, and when a table is read again."""
