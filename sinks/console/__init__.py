"""Changes as lines of text on standard output."""
