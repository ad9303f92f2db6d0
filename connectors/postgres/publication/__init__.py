"""The publication: its tables, its upkeep, and what it does not cover."""
