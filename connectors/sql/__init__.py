"""Tables of any database that SQLAlchemy reaches, asked again and again for what is new."""
