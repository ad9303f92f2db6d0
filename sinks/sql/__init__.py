"""Rows into the tables of any database that SQLAlchemy reaches, offsets in the same transaction."""
