"""Tables of a target made anew from the log."""
