"""Tables as they were at a moment, and whether source, log and target agree about them."""
