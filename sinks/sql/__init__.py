"""Rows into tables of any database that SQLAlchemy supports, offsets in the same transaction."""
