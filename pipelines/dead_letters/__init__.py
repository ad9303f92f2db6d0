"""Records that could not be applied."""
