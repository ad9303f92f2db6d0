"""What differs from one database to the next, a module each."""
