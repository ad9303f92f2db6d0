"""From PostgreSQL's text of values to columns of the log, type by type."""
