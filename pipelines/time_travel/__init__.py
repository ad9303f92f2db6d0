"""What a table was at a moment, and whether source, log and target agree about it."""
