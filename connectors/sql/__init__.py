"""Tables of any database that SQLAlchemy supports, polled for new and changed rows."""
