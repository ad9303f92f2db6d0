"""The checks of `headwater doctor` for a PostgreSQL source."""
