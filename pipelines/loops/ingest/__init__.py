"""From a source to the log."""
