"""Tables of a target rebuilt from the log."""
